package chaos_test

import (
	"os/exec"
	"path/filepath"
	"time"

	"trainyard/internal/auth"
	"trainyard/internal/id"
)

// identityRows are certificates that have expired and folders that were copied.
func identityRows() []row {
	return []row{
		{number: "24", fault: "certificate almost expired when the agent starts", play: func(w *world) {
			n := w.victim()
			w.must(w.agents[n].Kill())
			w.resign(n, -9*time.Hour)
			w.startAgent(n)
			w.awaitNode(n, ready...)
		}},
		{number: "25", fault: "certificate expired when the agent starts", play: func(w *world) {
			n := w.victim()
			w.must(w.agents[n].Kill())
			w.resign(n, -11*time.Hour)

			var err error
			w.token, err = w.yard.JoinToken(w.ctx, 1)
			w.must(err)
			w.startAgent(n)
			w.awaitNode(n, ready...)
		}},
		{number: "27", fault: "copy of a node's folder on another machine", play: playCopiedFolder},
	}
}

// resign replaces the certificate of a node by one that is valid for ten hours from a moment in the past.
func (w *world) resign(node string, begun time.Duration) {
	ca, err := auth.OpenCA(filepath.Join(w.data("s1"), "ca"), time.Now())
	w.must(err)

	folder := filepath.Join(w.agentFolder(node), "identity")
	identity, err := auth.LoadNodeIdentity(folder)
	w.must(err)

	csr, err := identity.CSR(node)
	w.must(err)

	cert, _, err := ca.SignNode(csr, id.Node(node), 10*time.Hour, time.Now().Add(begun))
	w.must(err)
	w.must(identity.Install(cert))
	w.must(identity.Save(folder))
}

// playCopiedFolder starts an agent on a copy of a node's folder on a machine of its own.
func playCopiedFolder(w *world) {
	n := w.victim()
	w.must(w.lab.Add("n4"))
	w.must(exec.CommandContext(w.ctx, "cp", "-a", w.data(n), w.data("n4")).Run())

	copied := w.startAgentIn("n4", w.data("n4"), n)

	select {
	case <-copied.Gone():
	case <-time.After(2 * lostAfter):
		w.report(state, "the agent on the copied folder goes on as if it were node %s", n)
		w.must(copied.Kill())
	}

	w.awaitNode(n, ready...)
}
