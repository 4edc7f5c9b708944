package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"trainyard/internal/api"
	"trainyard/internal/clock"
	"trainyard/internal/fault"
	"trainyard/internal/fleet"
)

// A data directory can be copied, with the node's key in it: a machine image is cloned, a disk is restored beside the
// original. Two agents would then carry out the same assignments. So every request says which process of which machine
// sends it, the server admits one of them, and an agent adopts and starts nothing until it has been admitted, except
// in the place where an earlier agent was: there it goes on while the server is away.

// admissionRetry is how often an agent that is not admitted yet reports.
const admissionRetry = time.Second

// describeProcess says which process this is and where it runs. What cannot be found out stays empty.
func (a *Agent) describeProcess() (fleet.Agent, error) {
	var mark [8]byte
	if _, err := rand.Read(mark[:]); err != nil {
		return fleet.Agent{}, fmt.Errorf("generate the mark of this process: %w", err)
	}

	dir, err := filepath.Abs(a.cfg.Dir)
	if err != nil {
		return fleet.Agent{}, fmt.Errorf("find the data directory: %w", err)
	}

	var folder unix.Stat_t
	if err := unix.Stat(dir, &folder); err != nil {
		return fleet.Agent{}, fmt.Errorf("look at the data directory: %w", err)
	}

	now, err := a.cfg.Moment()
	if err != nil {
		a.noteProblem("boot ID", err)
	}

	host, err := os.Hostname()
	if err != nil {
		a.noteProblem("host name", err)
	}

	return fleet.Agent{
		Process: hex.EncodeToString(mark[:]),
		Machine: machineMark(),
		Boot:    now.Boot,
		Folder:  fmt.Sprintf("%x:%x", folder.Dev, folder.Ino),
		Started: now.Since,
		Host:    host,
		Path:    dir,
	}, nil
}

// machineMark identifies this machine over its boots, "" if it has no machine ID: some containers have none. The ID
// itself stays on the machine, because other programs treat it as confidential.
func machineMark() string {
	for _, path := range []string{"/etc/machine-id", "/var/lib/dbus/machine-id"} {
		text, err := os.ReadFile(path)
		if machine := strings.TrimSpace(string(text)); err == nil && len(machine) == 32 {
			sum := sha256.Sum256([]byte("trainyard " + machine))
			return hex.EncodeToString(sum[:16])
		}
	}

	return ""
}

// newClient returns a client for everything that this agent asks of the server.
func (a *Agent) newClient() *api.Client {
	return api.NewClient(a.servers.current(), "", a.identity.TLS()).As(&a.process)
}

// refused returns the server's refusal of this process, nil if the error is none.
func refused(err error) *fault.Error {
	var f *fault.Error
	if errors.As(err, &f) && (f.Code == api.CodeAgentCopied || f.Code == api.CodeAgentReplaced) {
		return f
	}

	return nil
}

// awaitAdmission reports until this process speaks for the node. It fails if the server refuses it for good. Without
// the server it returns only in the place where an agent was admitted before: the runs there are its own, whatever
// the server will say.
func (a *Agent) awaitAdmission(ctx context.Context) error {
	place := a.placeMark()
	ours := a.memory.Place == "" || a.memory.Place == place

	for ctx.Err() == nil {
		_, err := a.report(ctx)
		if refusal := refused(err); refusal != nil {
			return refusal
		}

		if ctx.Err() != nil {
			break
		}

		var f *fault.Error
		waits := errors.As(err, &f) && f.Code == api.CodeAgentWaits

		if !waits && err != nil && !ours {
			err = fmt.Errorf("the data directory was copied or moved here, nothing is done before the server agrees: %w", err)
		}

		a.noteProblem("admission by the server", err)

		if err == nil {
			a.noteProblem("state file", a.rememberPlace(place)) // a full disk keeps no agent from its runs
			break
		}
		if ours && !waits || a.nodeLease.expired() {
			break
		}

		clock.Sleep(ctx, admissionRetry)
	}

	return nil //nolint:nilerr // an unreachable server is not a failure
}

// placeMark names the data directory on this machine. It does not name the boot: the place is the same after another.
func (a *Agent) placeMark() string { return a.process.Machine + "/" + a.process.Folder }

// leaveIfRefused ends the agent if the server has refused it for good. What it runs is left to the supervisors, which
// stop it when the contact lease expires: it may belong to the agent that was admitted.
func (a *Agent) leaveIfRefused(err error) {
	if refusal := refused(err); refusal != nil {
		a.leave(refusal)
	}
}
