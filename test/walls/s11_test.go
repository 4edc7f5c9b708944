package walls_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"trainyard/internal/api"
)

// uploads uploads a content and returns its digest.
func (u *user) uploads(t *testing.T, content string) string {
	t.Helper()
	digest := sha256Of(content)
	must(t, u.PutFile(t.Context(), digest, "", strings.NewReader(content)))

	return digest
}

func sha256Of(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// folderOf is the manifest of a working directory with one file.
func folderOf(t *testing.T, path, digest string) string {
	t.Helper()
	text, err := json.Marshal(api.Manifest{Files: []api.ManifestFile{{Path: path, Mode: 0o644, Size: 1, Digest: digest}}})
	must(t, err)

	return string(text)
}

// TestS11_ADigestGivesNoRightToAFile guesses the content of another's files, and uses their digests.
func TestS11_ADigestGivesNoRightToAFile(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	y.rootAgent(t, "north")
	ada, mallory := y.user(t, "ada"), y.user(t, "mallory")
	secret := ada.uploads(t, "DB_PIN=7391\n")
	dir := ada.uploads(t, folderOf(t, ".env", secret))

	// All PINs in one request, as in the review.
	guesses := make([]string, 10_000)
	for i := range guesses {
		guesses[i] = sha256Of(fmt.Sprintf("DB_PIN=%04d\n", i))
	}

	missing, err := mallory.MissingFiles(t.Context(), guesses)
	must(t, err)

	if len(missing) != len(guesses) {
		t.Errorf("mallory learns that %d of the guesses are on the server", len(guesses)-len(missing))
	}

	own := mallory.uploads(t, folderOf(t, "loot", secret))
	for what, manifest := range map[string]string{"her directory": dir, "her file in his directory": own} {
		a := mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: "run: cat .env loot",
			Workdir: manifest})
		if a.status != http.StatusUnprocessableEntity || a.problem.Code != "workdir_missing" ||
			!strings.Contains(a.problem.Detail, "was not uploaded") {
			t.Errorf("%s: %s", what, &a)
		}
	}

	// Who has uploaded it uses it as before.
	reply, err := ada.Submit(t.Context(), api.SubmitRequest{File: script("cat .env"), Workdir: dir}, "")
	must(t, err)
	ada.ended(t, reply.Jobs[0].ID)

	if out := ada.output(t, reply.Jobs[0].ID); !strings.Contains(out, "DB_PIN=7391") {
		t.Errorf("ada's own job printed %q", out)
	}
}

// TestS11_AManifestThatLeadsOutIsRefusedAtOnce submits manifests that no client of ours makes.
func TestS11_AManifestThatLeadsOutIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	mallory := y.user(t, "mallory")
	file := mallory.uploads(t, "x")

	for name, files := range map[string][]api.ManifestFile{
		"absolute": {{Path: "/etc/cron.d/x", Digest: file}},
		"climbing": {{Path: "a/../../x", Digest: file}},
		"chain":    {{Path: "a/b/l", Link: "../.."}, {Path: "x", Link: "a/b/l/../identity/node.pem"}},
		"terminal": {{Path: "a\x1b]52;c;ZXZpbA==\a", Digest: file}},
	} {
		text, err := json.Marshal(api.Manifest{Files: files})
		must(t, err)

		manifest := mallory.uploads(t, string(text))
		a := mallory.call(t, http.MethodPost, "/api/v1/jobs", api.SubmitRequest{File: "run: ls", Workdir: manifest})
		if a.status != http.StatusUnprocessableEntity || a.problem.Code != "bad_manifest" {
			t.Errorf("%s: %s", name, &a)
		}
	}
}
