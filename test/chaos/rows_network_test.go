package chaos_test

import (
	"syscall"
	"time"

	"trainyard/test/netlab"
)

// networkRows are the faults of the network between agents and server.
func networkRows() []row {
	return []row{
		{number: "1", fault: "link down for half of lost-after", brief: true, play: func(w *world) {
			n := w.victim()
			there := w.on(n)
			begun := time.Now()
			w.must(w.host(n).Unplug())
			w.awaitNode(n, "suspect")
			w.sleep(lostAfter/2 - time.Since(begun))
			w.heal(n)
			w.awaitNode(n, ready...)

			if time.Since(begun) < lostAfter*3/4 { // else the machine was too busy for the node to be back in time
				w.sameProcesses(there)
			}
		}},
		{number: "2", fault: "link down for about lost-after, twice", play: func(w *world) {
			for _, d := range []time.Duration{lostAfter * 9 / 10, lostAfter} {
				n := w.victim()
				w.must(w.host(n).Unplug())
				w.sleep(d)
				w.heal(n)
				w.awaitNode(n, ready...)
			}
		}},
		{number: "3", fault: "link down for longer than lost-after", brief: true, play: func(w *world) {
			w.isolate(netlab.Cut()...)
		}},
		{number: "4", fault: "one way, agent to server dropped", play: func(w *world) {
			w.isolate(netlab.Drop(netlab.Out))
		}},
		{number: "5", fault: "one way, server to agent dropped", play: func(w *world) {
			w.isolate(netlab.Drop(netlab.In))

			n := w.victim()
			w.breakLink(n, netlab.Drop(netlab.In))
			w.sleep(lostAfter / 3)
			w.heal(n)
		}},
		{number: "6", fault: "30 % of all packets lost", play: func(w *world) {
			for _, n := range nodeNames {
				w.breakLink(n, netlab.Lose(30)...)
			}

			w.sleep(beyond)

			for _, n := range nodeNames {
				w.heal(n)
			}
		}},
		{number: "7", fault: "an answer comes late, then the link is cut", play: playLateAnswer},
		{number: "23", fault: "uploads broken off again and again, server killed", chatty: true, play: playBrokenUploads},
	}
}

// isolate breaks the link of a node until its jobs run elsewhere, and heals it.
func (w *world) isolate(rules ...netlab.Rule) {
	n := w.victim()
	there := w.on(n)
	w.breakLink(n, rules...)
	w.awaitNode(n, "suspect", "lost")
	w.awaitNode(n, "lost")
	w.awaitElsewhere(there)
	w.sleep(time.Second)
	w.heal(n)
	w.awaitNode(n, ready...)
}

// playLateAnswer holds the answer to a report back for some seconds, lets it arrive, and cuts the link: the agent has a
// fresh answer to a question that the server counts as old.
func playLateAnswer(w *world) {
	n := w.victim()
	there := w.on(n)

	// A report is on its way, and its answer does not come.
	w.breakLink(n, netlab.Drop(netlab.In))
	w.sleep(4 * time.Second)

	// The answer comes with the kernel's next attempt. Acknowledgements pass, further questions do not.
	w.breakLink(n, netlab.Rule{Direction: netlab.Out, Match: "tcp flags & (psh | syn) != 0", Verdict: "drop"})
	w.sleep(5500 * time.Millisecond)

	w.breakLink(n, netlab.Cut()...)
	w.awaitElsewhere(there)
	w.sleep(lostAfter)
	w.heal(n)
	w.awaitNode(n, ready...)
}

// playBrokenUploads breaks connections of all kinds in all ways while the jobs print a lot.
func playBrokenUploads(w *world) {
	for round := range 9 {
		n := nodeNames[round%len(nodeNames)]

		switch round % 3 {
		case 0:
			w.breakLink(n, netlab.Cut()...)
			w.sleep(1500 * time.Millisecond)
			w.heal(n)
		case 1:
			w.breakLink(n, netlab.Drop(netlab.In))
			w.sleep(1500 * time.Millisecond)
			w.heal(n)
		case 2:
			w.breakLink("s1", netlab.Reset("7443")...)
			w.sleep(500 * time.Millisecond)
			w.heal("s1")
			w.signal(syscall.SIGKILL, w.yard.Server().PID())
			<-w.yard.Server().Gone()
			w.startServer()
			w.awaitServer()
		}

		w.sleep(time.Second)
	}
}
