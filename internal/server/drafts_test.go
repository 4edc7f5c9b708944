package server

import (
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/spec"
)

func TestAJobFileCanBeSubmittedAgain(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, root := y.researcher("ada"), y.admin()

	deadline := y.clock.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	jobs := y.submit(ada, "name: prep\nrun: 'true'\n---\nname: train\nrun: python train.py\nneeds: [prep]\ndeadline: "+deadline+
		"\nresources: {gpus: 1..4}\nenv: {TOKEN: hidden, LR: '0.1'}\n")
	train := jobs[1].ID

	mine, err := ada.JobFile(t.Context(), train)
	y.must(err)

	for _, want := range []string{"name: train\n", "run: python train.py\n", "gpus: 1..4\n", "TOKEN: hidden", "deadline: "} {
		if !strings.Contains(mine.File, want) {
			t.Errorf("the file has no %q:\n%s", want, mine.File)
		}
	}

	if strings.Contains(mine.File, "needs") || len(mine.Notes) != 1 || !strings.Contains(mine.Notes[0], "needed prep") {
		t.Errorf("notes %q on:\n%s", mine.Notes, mine.File)
	}

	if again := y.submit(ada, mine.File); len(again) != 1 || again[0].Name != "train" {
		t.Errorf("submitted again: %+v", again)
	}

	// The values of env are for the owner alone, and a deadline passes.
	y.advance(2 * time.Hour)
	others, err := root.JobFile(t.Context(), train)
	y.must(err)

	if strings.Contains(others.File, "hidden") || strings.Contains(others.File, "deadline") || len(others.Notes) != 3 ||
		!strings.Contains(strings.Join(others.Notes, "\n"), "LR and TOKEN") {
		t.Errorf("an admin gets %q and:\n%s", others.Notes, others.File)
	}
}

func TestAJobFileHasTheFilesOfWhoMayUseThem(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")

	manifest := `{"files":[{"path":"a.txt","mode":420,"size":1,"digest":"` + digestOf("a") + `"}]}`
	for _, content := range []string{"a", manifest} {
		y.must(ada.PutFile(t.Context(), digestOf(content), "", strings.NewReader(content)))
	}

	reply, err := ada.Submit(t.Context(), api.SubmitRequest{
		File: "run: cat a.txt\nworkdir: .\n", Workdir: digestOf(manifest),
	}, "")
	y.must(err)

	mine, err := ada.JobFile(t.Context(), reply.Jobs[0].ID)
	y.must(err)

	if mine.Workdir != digestOf(manifest) || len(mine.Notes) > 0 {
		t.Errorf("the owner gets %+v", mine)
	}

	others, err := y.admin().JobFile(t.Context(), reply.Jobs[0].ID)
	y.must(err)

	if others.Workdir != "" || len(others.Notes) != 1 || !strings.Contains(others.File, "workdir: .") {
		t.Errorf("somebody who did not upload the files gets %+v", others)
	}
}

func TestTemplatesAreThoseOfTheCommandLine(t *testing.T) {
	t.Parallel()
	y := newYard(t)

	want, err := spec.Templates()
	y.must(err)
	got, err := y.researcher("ada").Templates(t.Context())
	y.must(err)

	if len(got.Templates) != len(want) || len(want) == 0 {
		t.Fatalf("%d templates, want %d", len(got.Templates), len(want))
	}

	for i, w := range want {
		if g := got.Templates[i]; g.Name != w.Name || g.Title != w.Title || g.File != w.Text {
			t.Errorf("template %d is %+v, want %+v", i, g, w)
		}
	}
}
