package chaos_test

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/diskspace"
	"trainyard/internal/job"
	"trainyard/test/chaos/evidence"
	"trainyard/test/netlab"
)

// diskSize is that of a small disk, in MB.
const diskSize = 48

// nodeDisks give every node a small disk.
func nodeDisks() map[string]int {
	return map[string]int{"n1": diskSize, "n2": diskSize, "n3": diskSize}
}

// diskRows are full disks.
func diskRows() []row {
	return []row{
		{number: "18", fault: "disk of a node full", disks: nodeDisks(), play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			free := w.fill(n)

			// A node without space says so, and what runs on it runs on.
			w.until(state, "node "+n+" to show that its disk is full", func() string { return w.showsFullDisk(n) })
			w.sleep(beyond)
			w.sameProcesses(there)
			free()
			w.awaitNode(n, ready...)
		}},
		{number: "19", fault: "disk of a node full, then its link is cut", disks: nodeDisks(), play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			free := w.fill(n)
			w.sleep(time.Second)
			w.breakLink(n, netlab.Cut()...)
			w.awaitNode(n, "lost")
			w.awaitElsewhere(there)
			w.sleep(lostAfter)
			free()
			w.heal(n)
			w.awaitNode(n, ready...)
		}},
		{number: "20", fault: "disk of a node full, then its jobs are killed", disks: nodeDisks(), play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			free := w.fill(n)
			w.sleep(time.Second)
			w.killJobs(there)

			w.until(stuck, "the end of killed jobs on a node without space", func() string {
				for _, p := range there {
					if alive(p.PID) {
						return p.String() + " runs on"
					}
				}

				return ""
			})

			free()
			w.awaitNode(n, ready...)
		}},
		{
			number: "21", fault: "disk of the server full", stores: []string{sqlite}, disks: map[string]int{"s1": diskSize},
			play: func(w *world) {
				free := w.fill("s1")
				w.sleep(beyond)
				free()
				w.awaitServer()
			},
		},
		{
			number: "22", fault: "disk of the server full, then a link is cut; suspect-after long", stores: []string{sqlite},
			disks: map[string]int{"s1": diskSize}, flags: []string{"--suspect-after", (lostAfter / 2).String()},
			play: playStallThenCut,
		},
		{
			number: "22b", fault: "disk of the server full, then a link is cut", stores: []string{sqlite},
			disks: map[string]int{"s1": diskSize}, play: playStallThenCut,
		},
	}
}

// playStallThenCut keeps the server from storing anything for some seconds, in which it answers "not now", and cuts a
// link just before it recovers.
func playStallThenCut(w *world) {
	n := w.victim()
	there := w.on(n)
	free := w.fill("s1")
	w.sleep(lostAfter / 3)
	w.breakLink(n, netlab.Cut()...)
	free()
	w.awaitElsewhere(there)
	w.sleep(lostAfter)
	w.heal(n)
	w.awaitServer()
}

// showsFullDisk says what is wrong with how a node without space is shown.
func (w *world) showsFullDisk(node string) string {
	n, err := w.node(node)
	if err != nil {
		return err.Error()
	}

	if n.Problem == nil || n.Problem.Cause != diskspace.CodeFull {
		return fmt.Sprintf("it is %s, with the problem %v and the reason %q", n.State, n.Problem, n.Reason)
	}

	return ""
}

// killJobs kills the jobs of processes.
func (w *world) killJobs(of []*evidence.Process) {
	for _, s := range w.load.acknowledged() {
		for _, p := range of {
			if s.name != p.Job {
				continue
			}

			s.want = job.Cancelled

			_, err := call(w.load, func(ctx context.Context, c *api.Client) (api.Job, error) { return c.KillJob(ctx, s.id) })
			w.must(err)
		}
	}
}

// alive reports whether a process is there.
func alive(pid int) bool { return syscall.Kill(pid, 0) == nil }
