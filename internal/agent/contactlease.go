package agent

import (
	"errors"

	"trainyard/internal/api"
	"trainyard/internal/contact"
	"trainyard/internal/fault"
)

// moment reads the clock of contact leases. It is read before a report is sent: the server
// handles the report after that, so its patience never ends before the lease.
func (a *Agent) moment() (contact.Moment, error) {
	m, err := a.cfg.Moment()
	return contact.Moment{Boot: m.Boot, Since: m.Since}, err
}

func generationOf(reply *api.ReportReply) contact.Generation {
	return contact.Generation{Server: reply.Server, Number: reply.Generation}
}

// takeGrant renews the contact lease by the answer to a report that was sent at this moment, and
// remembers what the answer says about the servers.
func (a *Agent) takeGrant(sent contact.Moment, reply *api.ReportReply) error {
	if reply.Lease <= 0 {
		return nil
	}

	m := a.memory
	m.Server = a.servers.current()
	m.ContactLease, m.ContactGrace = reply.Lease, reply.Grace
	m.Servers = reply.Servers
	m.StandbyKnown = reply.Server != "" // servers that name their start say it, too
	m.Standby = reply.Standby
	a.servers.learn(reply.Servers)

	// No rank is given to the runtime between the two steps: one of older assignments would be
	// started under the new lease.
	a.starting.Lock()
	generation := generationOf(reply)
	first := a.granted == nil || a.granted.Server != generation.Server
	a.granted = &generation
	err := a.rt.RenewContactLease(m.grant().From(sent), true)
	a.starting.Unlock()

	if first {
		notify(a.reconcileSoon) // what this server assigned before was not started
	}

	return errors.Join(err, a.saveMemory(m))
}

// extendContactLease extends a valid contact lease after a report has failed, if that proves that
// the server counts the time anew.
func (a *Agent) extendContactLease(sent contact.Moment, f contact.Failure) error {
	if !a.memory.yard().Extends(f) || a.memory.ContactLease <= 0 {
		return nil
	}

	if f == contact.Refused && a.servers.current() != a.memory.Server {
		return nil // no server may ever have been there
	}

	err := a.rt.RenewContactLease(a.memory.grant().From(sent), false)

	var over *fault.Error
	if errors.As(err, &over) && over.Kind == fault.Unavailable {
		return nil // it has expired: the next answer begins another
	}

	return err
}

// mayStart reports whether assignments of this generation may be started: only if this process has
// had an answer, and they are as new as the newest one. The caller holds a.starting.
func (a *Agent) mayStart(g contact.Generation) bool { return a.granted != nil && g.Covers(*a.granted) }
