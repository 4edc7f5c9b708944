package chaos_test

import (
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"trainyard/test/chaos/evidence"
)

// processRows are the faults of single processes: killed, or stopped and continued.
func processRows() []row {
	return []row{
		{number: "8", fault: "agent frozen", play: func(w *world) {
			w.freeze(anAgent)
		}},
		{number: "9", fault: "agent and supervisors frozen", play: func(w *world) {
			w.freeze(anAgent, aSupervisor)
		}},
		{number: "10", fault: "whole node frozen", play: func(w *world) {
			w.freeze(anAgent, aSupervisor, aProgram)
		}},
		{number: "11", fault: "server frozen", play: func(w *world) {
			server := w.yard.Server().PID()
			w.signal(syscall.SIGSTOP, server)
			w.sleep(beyond)
			w.signal(syscall.SIGCONT, server)
			w.awaitServer()
		}},
		{number: "12", fault: "server killed, back after more than lost-after", brief: true, play: func(w *world) {
			there := slices.Concat(w.on("n1"), w.on("n2"), w.on("n3"))
			w.must(w.yard.Server().Kill())
			w.sleep(beyond)
			w.startServer()
			w.awaitServer()
			w.awaitTicks(there)
			w.sameProcesses(there)
		}},
		{number: "13", fault: "agent killed, back soon, and back after lost-after", brief: true, play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			begun := time.Now()
			w.must(w.agents[n].Kill())
			w.sleep(lostAfter / 3)
			w.startAgent(n)
			w.awaitNode(n, ready...)
			w.awaitTicks(there)

			if time.Since(begun) < lostAfter*3/4 { // else the machine was too busy for the agent to be back in time
				w.sameProcesses(there)
			}

			n = w.victim()
			there = w.on(n)
			w.must(w.agents[n].Kill())
			w.awaitNode(n, "lost")
			w.awaitElsewhere(there)
			w.startAgent(n)
			w.awaitNode(n, ready...)
		}},
		{number: "14", fault: "agent killed, back on an empty folder", short: everything, play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			w.must(w.agents[n].Kill())

			w.agents[n] = w.startAgentIn(n, w.data(n)+"-empty", n)

			w.mu.Lock()
			w.gone = append(w.gone, n)
			w.mu.Unlock()

			w.awaitNode(n+"-2", ready...)
			w.awaitNode(n, "lost")
			w.awaitElsewhere(there)
		}},
		{number: "15", fault: "supervisors killed", short: inPipe, play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			w.signal(syscall.SIGKILL, w.pids(n, aSupervisor)...)
			w.awaitElsewhere(there)
		}},
		{number: "16", fault: "agent and supervisors killed", short: inPipe, play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			w.must(w.agents[n].Kill())
			w.signal(syscall.SIGKILL, w.pids(n, aSupervisor)...)
			w.awaitNode(n, "lost")
			w.awaitElsewhere(there)
			w.sleep(2 * time.Second)
			w.startAgent(n)
			w.awaitNode(n, ready...)
		}},
		{number: "26", fault: "two agents on one folder", play: func(w *world) {
			n := w.victim()
			first := w.agents[n]
			w.startAgent(n)

			code, err := w.agents[n].Wait(patience)
			if err != nil || code == 0 {
				w.report(state, "the second agent on one folder ended with code %d (%v), want a refusal", code, err)
			}

			w.agents[n] = first
		}},
	}
}

// How many lines may be missing at the end of a run.
const (
	inPipe     = 3       // between the program and a supervisor that is killed
	everything = 1 << 30 // on a folder that nobody reads any more
)

// freeze stops processes of a node until its jobs run elsewhere, and lets them continue.
func (w *world) freeze(kinds ...string) {
	n := w.victim()
	there := w.on(n)
	pids := w.pids(n, kinds...)

	w.signal(syscall.SIGSTOP, pids...)
	w.awaitNode(n, "lost")
	w.awaitElsewhere(there)
	w.sleep(3 * time.Second)

	if slices.Contains(kinds, aProgram) {
		w.noteThaw(n)
	}

	w.signal(syscall.SIGCONT, pids...)
	w.awaitNode(n, ready...)
}

// noteThaw notes that all of a node goes on now.
func (w *world) noteThaw(node string) {
	now, err := evidence.Now()
	w.must(err)

	w.mu.Lock()
	defer w.mu.Unlock()

	w.thaws = append(w.thaws, thaw{w.host(node).Address, now})
}

// agentFolder is where an agent keeps its identity and its runs.
func (w *world) agentFolder(node string) string { return filepath.Join(w.data(node), "agent") }
