package walls_test

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/diskspace/smalldisk"
)

// TestS07_UploadsDoNotFillTheDisk uploads files without end to a server whose disk is small. Uploads filled it, and
// then nothing could be changed any more.
func TestS07_UploadsDoNotFillTheDisk(t *testing.T) {
	t.Parallel()
	disk := smalldisk.Mount(t, 64)
	y := newYard(t, "--blobs", filepath.Join(disk, "blobs"), "--store", filepath.Join(disk, "yard.db"),
		"--disk-reserve", "32MB")
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")

	a := mallory.uploadNew(t)
	for i := 0; a.status == http.StatusNoContent && i < 20; i++ {
		a = mallory.uploadNew(t)
	}

	if a.status != http.StatusServiceUnavailable || a.problem.Code != "no_space" ||
		!strings.HasPrefix(a.problem.Detail, "the server accepts no uploads: the disk that holds "+disk) {
		t.Errorf("the upload that does not fit: %s", &a)
	}

	// Everybody else goes on.
	y.user(t, "carol")
	y.rootAgent(t, "north")
	alice.ended(t, alice.submit(t, script("true")))

	if ready := alice.call(t, http.MethodGet, "/readyz", nil); ready.status != http.StatusOK {
		t.Errorf("the server is %s", &ready)
	}
}

// TestS07_AUserUploadsUpToALimit uploads files until the limit of a user, with several uploads at a time.
func TestS07_AUserUploadsUpToALimit(t *testing.T) {
	t.Parallel()
	y := newYard(t, "--max-uploaded", "18MB")
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")

	answers := make(chan answer, 10)
	for range cap(answers) {
		go func() {
			var a answer
			defer func() { answers <- a }() // also if the call ends the test

			a = mallory.uploadNew(t)
		}()
	}

	var taken int
	for range cap(answers) {
		a := <-answers
		switch {
		case a.status == http.StatusNoContent:
			taken++
		case a.status != http.StatusTooManyRequests || a.problem.Code != "upload_quota" ||
			!strings.HasPrefix(a.problem.Detail, "the uploaded files of mallory have "):
			t.Errorf("the upload that does not fit: %s", &a)
		}
	}

	if taken > 4 { // of 4 MiB each
		t.Errorf("%d uploads were taken", taken)
	}

	if a := alice.uploadNew(t); a.status != http.StatusNoContent {
		t.Errorf("the upload of another user: %s", &a)
	}
}

// uploadNew uploads 4 MiB that nobody has uploaded.
func (u *user) uploadNew(t *testing.T) answer {
	t.Helper()
	content := make([]byte, 4<<20)
	_, _ = rand.Read(content) // it never fails

	sum := sha256.Sum256(content)

	return u.call(t, http.MethodPut, "/api/v1/files/"+hex.EncodeToString(sum[:]), bytes.NewReader(content))
}
