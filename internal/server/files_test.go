package server

import (
	"encoding/json"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/api"
	"trainyard/internal/fault"
	"trainyard/internal/id"
	"trainyard/internal/retention"
	"trainyard/internal/server/httpapi"
	"trainyard/internal/store"
)

// upload uploads a content and returns its digest.
func (y *yard) upload(c *api.Client, content string) string {
	y.t.Helper()
	y.must(c.PutFile(y.t.Context(), digestOf(content), "", strings.NewReader(content)))

	return digestOf(content)
}

// manifestOf is the manifest of a working directory of one file.
func manifestOf(t testing.TB, path, digest string) string {
	t.Helper()
	text, err := json.Marshal(api.Manifest{Files: []api.ManifestFile{{Path: path, Mode: 0o600, Size: 1, Digest: digest}}})
	if err != nil {
		t.Fatal(err)
	}

	return string(text)
}

func (y *yard) submitDir(c *api.Client, manifest string) (id.Job, error) {
	y.t.Helper()
	reply, err := c.Submit(y.t.Context(), api.SubmitRequest{File: "run: cat .env", Workdir: manifest}, "")
	if err != nil {
		return "", err
	}

	return reply.Jobs[0].ID, nil
}

func codeAndText(err error) string {
	if f, ok := err.(*fault.Error); ok { //nolint:errorlint // clients return it as it is
		return f.Code + ": " + f.Message
	}

	return "no fault"
}

// A digest gives no right to the content of others, and nobody learns what others have uploaded.
func TestTheFilesOfOthersAreAsIfTheyWereNotThere(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	secret := y.upload(ada, "DB_PIN=7391")
	dir := y.upload(ada, manifestOf(t, ".env", secret))

	asked := []string{secret, digestOf("DB_PIN=0000"), dir}
	missing, err := bob.MissingFiles(t.Context(), asked)
	y.must(err)

	if !slices.Equal(missing, asked) {
		t.Errorf("bob is told that only %v are missing", missing)
	}

	missing, err = ada.MissingFiles(t.Context(), asked)
	y.must(err)

	if !slices.Equal(missing, asked[1:2]) {
		t.Errorf("ada is told that %v are missing", missing)
	}

	_, err = y.submitDir(bob, dir)
	_, absent := y.submitDir(bob, digestOf("absent"))

	if got := codeAndText(err); got != codeAndText(absent) || !strings.HasPrefix(got, "workdir_missing: the manifest") {
		t.Errorf("ada's directory: %s; one that is not there: %s", got, codeAndText(absent))
	}

	own := y.upload(bob, manifestOf(t, "loot", secret))
	guess := y.upload(bob, manifestOf(t, "loot", digestOf("DB_PIN=0000")))
	_, err = y.submitDir(bob, own)
	_, absent = y.submitDir(bob, guess)

	if got := codeAndText(err); got != codeAndText(absent) || !strings.HasPrefix(got, "workdir_missing: the file loot") {
		t.Errorf("ada's file: %s; one that is not there: %s", got, codeAndText(absent))
	}

	y.upload(bob, "DB_PIN=7391") // now he has shown to have it

	_, err = y.submitDir(bob, own)
	y.must(err)
	_, err = y.submitDir(ada, dir)
	y.must(err)
}

// A manifest that no agent would accept is refused when it is submitted, not on a node.
func TestAManifestIsCheckedWhenItIsSubmitted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	file := y.upload(ada, "text")

	for _, tt := range []struct{ name, path, want string }{
		{"climbs", "../x", `bad_manifest: the uploaded manifest is not valid: the manifest's file "../x" is not a plain relative path`},
		{"absolute", "/etc/x", `bad_manifest: the uploaded manifest is not valid: the manifest's file "/etc/x" is not a plain relative path`},
		{"escapes", "a\x1b[2J", `bad_manifest: the uploaded manifest is not valid: the manifest's file "a\x1b[2J" has control characters in its name`},
	} {
		_, err := y.submitDir(ada, y.upload(ada, manifestOf(t, tt.path, file)))
		if got := codeAndText(err); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func (n *node) fetch(digest string) (string, error) {
	f, err := n.FetchFile(n.y.t.Context(), digest)
	if err != nil {
		return "", err
	}

	text, err := io.ReadAll(f)
	n.y.must(f.Close())

	return string(text), err
}

// A node gets the files of its own runs, as long as they are there.
func TestANodeFetchesOnlyWhatItsRunsNeed(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	file, other := y.upload(ada, "text"), y.upload(ada, "another")
	dir := y.upload(ada, manifestOf(t, "a", file))

	n := y.join("node")
	n.listen()

	for _, digest := range []string{file, dir, other, digestOf("absent")} {
		if _, err := n.fetch(digest); fault.KindOf(err) != fault.Denied {
			t.Errorf("before any run: %v", err)
		}
	}

	j, err := y.submitDir(ada, dir)
	y.must(err)

	run := n.awaitRun(j, 1)

	if text, err := n.fetch(file); text != "text" || err != nil {
		t.Errorf("the file of its run: %q, %v", text, err)
	}
	if _, err := n.fetch(dir); err != nil {
		t.Errorf("the manifest of its run: %v", err)
	}
	if _, err := n.fetch(other); fault.KindOf(err) != fault.Denied {
		t.Errorf("a file of no run: %v", err)
	}

	thief := y.join("thief")
	if _, err := thief.fetch(file); fault.KindOf(err) != fault.Denied {
		t.Errorf("a file of a run on another node: %v", err)
	}

	n.starts(run, 0)
	n.ends(run, 0, 0)
	n.await(func(a api.Assignments) bool { return len(a.Runs) == 0 && a.Generation > 1 })

	if _, err := n.fetch(file); fault.KindOf(err) != fault.Denied {
		t.Errorf("after the run: %v", err)
	}
}

// Who possesses the files that versions without possessions have taken is found out from their jobs.
func TestTheFilesOfEarlierVersionsAreAdopted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada, bob := y.researcher("ada"), y.researcher("bob")
	file := digestOf("text")
	manifest := manifestOf(t, "a", file)
	dir, gone := digestOf(manifest), digestOf("gone")

	for _, content := range []string{"text", manifest} {
		y.must(y.blobs.Put(t.Context(), httpapi.FileBlob(digestOf(content)), strings.NewReader(content)))
	}

	old := y.clock.Now().Add(-time.Hour)
	y.must(y.store.Possess(
		t.Context(),
		store.Possession{Owner: "ada", Digest: dir, Size: store.UnreadManifest, Since: old},
		store.Possession{Owner: "ada", Digest: gone, Size: store.UnreadManifest, Since: old},
	))
	y.must(y.srv.content.Adopt(t.Context()))

	asked := []string{dir, file, gone}
	for c, want := range map[*api.Client][]string{ada: {gone}, bob: asked} {
		missing, err := c.MissingFiles(t.Context(), asked)
		y.must(err)

		if !slices.Equal(missing, want) {
			t.Errorf("missing %v, want %v", missing, want)
		}
	}

	bytes, err := y.store.PossessedBytes(t.Context(), "ada")
	if want := int64(len("text") + len(manifest)); bytes != want || err != nil {
		t.Errorf("ada possesses %d bytes (%v), want %d", bytes, err, want)
	}
}

// When a content is removed, so is who possesses it.
func TestPossessionEndsWithTheContent(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ada := y.researcher("ada")
	digest := y.upload(ada, "never submitted")

	y.pruned(retention.Limits{Unused: 24 * time.Hour})
	y.wantBlobs(false, httpapi.FileBlob(digest))

	if bytes, err := y.store.PossessedBytes(t.Context(), "ada"); bytes != 0 || err != nil {
		t.Errorf("ada still possesses %d bytes (%v)", bytes, err)
	}

	if digest != y.upload(ada, "never submitted") {
		t.Fatal("another digest")
	}

	if bytes, err := y.store.PossessedBytes(t.Context(), "ada"); bytes != int64(len("never submitted")) || err != nil {
		t.Errorf("ada possesses %d bytes (%v)", bytes, err)
	}
}

func TestAFileIsMadeOfPartsThatItsOwnerHas(t *testing.T) {
	t.Parallel()
	y := newYard(t, withConfig(func(c *Config) { c.MaxFile = 10 }))
	ada, bob := y.researcher("ada"), y.researcher("bob")
	join := func(c *api.Client, whole string, size int64, parts ...string) error {
		digests := make([]string, len(parts))
		for i, p := range parts {
			digests[i] = digestOf(p)
		}

		reply, err := c.JoinFile(t.Context(), digestOf(whole), api.JoinFileRequest{Parts: digests, Size: size})
		if err == nil && !reply.Done {
			t.Error("not done")
		}

		return err
	}

	y.upload(ada, "abc")
	wantFault(t, join(ada, "abcde", 5, "abc", "de"), fault.Conflict, "part_missing")
	y.upload(bob, "de") // it is there, and not ada's
	wantFault(t, join(ada, "abcde", 5, "abc", "de"), fault.Conflict, "part_missing")

	y.upload(ada, "de")
	wantFault(t, join(ada, "other", 5, "abc", "de"), fault.Invalid, "wrong_digest")
	wantFault(t, join(ada, "abcde", 11, "abc", "de"), fault.OverLimit, httpapi.TooLarge)
	y.must(join(ada, "abcdeabc", 8, "abc", "de", "abc"))
	y.must(join(ada, "abcdeabc", 8, "abc", "de", "abc"))

	missing, err := ada.MissingFiles(t.Context(), []string{digestOf("abcdeabc")})
	if err != nil || len(missing) > 0 {
		t.Errorf("missing %v (%v)", missing, err)
	}

	missing, err = bob.MissingFiles(t.Context(), []string{digestOf("abcdeabc")})
	if err != nil || len(missing) != 1 {
		t.Errorf("bob has it, too: %v (%v)", missing, err)
	}
}
