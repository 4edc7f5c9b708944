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
	y := newYard(t, "--blobs", filepath.Join(disk, "blobs"), "--store", filepath.Join(disk, "yard.db"), "--disk-reserve", "32MB")
	mallory, alice := y.user(t, "mallory"), y.user(t, "alice")

	upload := func() answer {
		content := make([]byte, 4<<20)
		_, err := rand.Read(content)
		must(t, err)

		sum := sha256.Sum256(content)

		return mallory.call(t, http.MethodPut, "/api/v1/files/"+hex.EncodeToString(sum[:]), bytes.NewReader(content))
	}

	a := upload()
	for i := 0; a.status == http.StatusNoContent && i < 20; i++ {
		a = upload()
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
