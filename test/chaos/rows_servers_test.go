package chaos_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"trainyard/test/netlab"
	"trainyard/test/yardtest"
)

// serverRows are the faults of yards with two servers.
func serverRows() []row {
	pg := []string{postgres}

	return []row{
		{number: "35", fault: "leader frozen until the other leads", stores: pg, standby: true, play: func(w *world) {
			leader, other := w.leaderAndStandby()
			w.signal(syscall.SIGSTOP, leader.Server().PID())
			w.awaitLead(other)
			w.sleep(2 * time.Second)
			w.signal(syscall.SIGCONT, leader.Server().PID())
			w.revive(leader)
			w.leaderAndStandby()
		}},
		{number: "35b", fault: "leader cut off from everything until the other leads", stores: pg, standby: true,
			play: func(w *world) {
				leader, other := w.leaderAndStandby()
				w.breakLink(w.nameOf(leader), netlab.Cut()...)
				w.awaitLead(other)
				w.sleep(lostAfter)
				w.heal(w.nameOf(leader))
				w.revive(leader)
				w.leaderAndStandby()
			}},
		{number: "35c", fault: "leader cut off from PostgreSQL alone", stores: pg, standby: true, play: func(w *world) {
			leader, other := w.leaderAndStandby()
			w.breakLink(w.nameOf(leader), netlab.CutFrom(w.host("db").Address)...)
			w.awaitLead(other)
			w.sleep(lostAfter)
			w.heal(w.nameOf(leader))
			w.revive(leader)
			w.leaderAndStandby()
		}},
		{number: "36", fault: "leader killed for good, the other has another address", stores: pg, standby: true,
			play: func(w *world) {
				there := slices.Concat(w.on("n1"), w.on("n2"), w.on("n3"))
				leader, other := w.leaderAndStandby()
				w.awaitAgentsKnow(other)
				w.must(leader.Server().Kill())
				w.awaitLead(other)
				w.sleep(beyond)

				// The agents have found the other in time: nothing was given up.
				w.awaitTicks(there)
				w.sameProcesses(there)
			}},
		{number: "37", fault: "PostgreSQL restarted under two servers", stores: pg, standby: true, play: func(w *world) {
			w.must(w.db.Kill())
			w.sleep(time.Second)
			w.startDatabase()
			w.leaderAndStandby()
			w.sleep(beyond)
			w.leaderAndStandby()
		}},
		{number: "38", fault: "standby waits while PostgreSQL is away, then leads", stores: pg, standby: true,
			play: func(w *world) {
				_, other := w.leaderAndStandby()
				w.must(w.db.Kill())
				w.sleep(lostAfter / 2)

				select {
				case <-other.Server().Gone():
					w.report(stuck, "the standby has ended while PostgreSQL was away")
				default:
				}

				w.startDatabase()
				leader, other := w.leaderAndStandby()
				w.must(leader.Server().Kill())
				w.awaitLead(other)
				w.start(leader)
				w.revive(leader)
			}},
	}
}

// awaitLead waits until a server leads.
func (w *world) awaitLead(server *yardtest.Yard) {
	w.until(stuck, "server "+w.nameOf(server)+" to lead", func() string {
		if !w.leads(server) {
			return "it does not lead"
		}

		return ""
	})
}

// awaitAgentsKnow waits until every agent has heard of a server from the other one.
func (w *world) awaitAgentsKnow(server *yardtest.Yard) {
	w.until(stuck, "agents to know server "+w.nameOf(server), func() string {
		for _, node := range nodeNames {
			memory, err := os.ReadFile(filepath.Join(w.agentFolder(node), "agent.json"))
			if err != nil {
				return err.Error()
			}

			if !strings.Contains(string(memory), server.URL()) {
				return node + " does not"
			}
		}

		return ""
	})
}
