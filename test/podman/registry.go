package podman

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"
)

// Registry is a registry of images in the process of the test.
type Registry struct {
	Address string // host and port

	password atomic.Pointer[string]
}

// User is who may pull from a registry that has a password; see Protect.
const User = "puller"

// NewRegistry starts a registry on a free port of an address, which ends with the test.
func NewRegistry(t testing.TB, address string) *Registry {
	t.Helper()

	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}

	r := &Registry{}
	images := registry.New(registry.Logger(log.New(io.Discard, "", 0)),
		registry.WithBlobHandler(registry.NewDiskBlobHandler(t.TempDir()))) // an image may be large
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if want := r.password.Load(); want != nil {
			if user, got, ok := q.BasicAuth(); !ok || user != User || got != *want {
				w.Header().Set("WWW-Authenticate", `Basic realm="images"`)
				http.Error(w, `{"errors":[{"code":"UNAUTHORIZED","message":"authentication required"}]}`, http.StatusUnauthorized)

				return
			}
		}

		images.ServeHTTP(w, q)
	}))
	_ = server.Listener.Close() // it is on loopback
	server.Listener = l
	server.Start()
	t.Cleanup(server.Close)
	r.Address = l.Addr().String()

	return r
}

// Protect lets only User pull, with a password.
func (r *Registry) Protect(password string) { r.password.Store(&password) }

// Image says what is in an image.
type Image struct {
	Programs []string          // of this machine, by their names
	Files    map[string]string // by their paths
	Copies   []string          // files of this machine, under their own paths
	Links    map[string]string // symbolic ones, by their paths
	SetUID   []string          // paths of files that have the bit by which a program gets the rights of root
	Open     []string          // folders that everybody may write to
	Env      []string
	Arch     string // that of this machine if left out
	User     string
}

// Programs are those of an image with a shell, enough for most scripts.
var Programs = []string{
	"bash", "sh", "cat", "ls", "id", "env", "echo", "sleep", "mkdir", "touch", "rm", "chmod", "chown", "grep", "tr", "wc",
	"dirname", "tee", "kill", "uname", "hostname", "stat", "unshare", "mount", "mknod", "readlink", "head", "tail", "seq",
	"true",
}

// Shell is an image with a shell and some programs.
func Shell() Image { return Image{Programs: Programs} }

// Push puts an image into the registry and returns the name by which it is pulled.
func (r *Registry) Push(t testing.TB, name string, img Image) string {
	t.Helper()

	layer, err := img.layer(filepath.Join(t.TempDir(), "layer"))
	if err != nil {
		t.Fatal(err)
	}

	arch := img.Arch
	if arch == "" {
		arch = runtime.GOARCH
	}

	config := blobOf(mustJSON(t, map[string]any{
		"architecture": arch, "os": "linux", "config": map[string]any{"Env": img.Env, "User": img.User},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{layer.digest}},
	}))
	manifest := blobOf(mustJSON(t, map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": config.describe("application/vnd.oci.image.config.v1+json"),
		"layers": []any{layer.describe("application/vnd.oci.image.layer.v1.tar")},
	}))

	repository, tag, _ := strings.Cut(name, ":")
	base := "http://" + r.Address + "/v2/" + repository

	for _, b := range []blob{layer, config} {
		r.send(t, http.MethodPost, base+"/blobs/uploads/?digest="+b.digest, "application/octet-stream", b)
	}

	r.send(t, http.MethodPut, base+"/manifests/"+tag, "application/vnd.oci.image.manifest.v1+json", manifest)

	return r.Address + "/" + name
}

func (r *Registry) send(t testing.TB, method, url, kind string, b blob) {
	t.Helper()

	body, err := b.open()
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = body.Close() }()

	q, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}

	q.ContentLength = b.size
	q.Header.Set("Content-Type", kind)

	if p := r.password.Load(); p != nil {
		q.SetBasicAuth(User, *p)
	}

	answer, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = answer.Body.Close() }()

	if answer.StatusCode >= http.StatusBadRequest {
		text, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s %s: %s: %s", method, url, answer.Status, text)
	}
}

// blob is what a registry keeps of an image under its digest.
type blob struct {
	digest string
	size   int64
	open   func() (io.ReadCloser, error)
}

// blobOf is a small one.
func blobOf(data []byte) blob {
	sum := sha256.Sum256(data)

	return blob{"sha256:" + hex.EncodeToString(sum[:]), int64(len(data)), func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(data)), nil
	}}
}

func (b blob) describe(kind string) map[string]any {
	return map[string]any{"mediaType": kind, "digest": b.digest, "size": b.size}
}

func mustJSON(t testing.TB, v any) []byte {
	t.Helper()

	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}

	return text
}

// layer packs the files of an image into a file.
func (img *Image) layer(path string) (b blob, err error) {
	file, err := os.Create(path)
	if err != nil {
		return blob{}, err
	}

	defer func() { err = errors.Join(err, file.Close()) }()

	sum := sha256.New()
	if err := img.pack(io.MultiWriter(file, sum)); err != nil {
		return blob{}, err
	}

	size, err := file.Seek(0, io.SeekCurrent)

	return blob{"sha256:" + hex.EncodeToString(sum.Sum(nil)), size, func() (io.ReadCloser, error) {
		return os.Open(path)
	}}, err
}

// pack writes the files of an image as a tar file.
func (img *Image) pack(to io.Writer) error {
	files := map[string][]byte{} // by their paths in the image
	for path, text := range img.Files {
		files[strings.TrimPrefix(path, "/")] = []byte(text)
	}

	for _, program := range img.Programs {
		if err := addProgram(files, program); err != nil {
			return err
		}
	}

	w := tar.NewWriter(to)
	made := map[string]bool{}

	paths := []string{}
	for path := range files {
		paths = append(paths, path)
	}

	slices.Sort(paths)

	for from, to := range img.Links {
		from = strings.TrimPrefix(from, "/")
		made[from] = true

		if err := w.WriteHeader(&tar.Header{Name: from, Linkname: to, Typeflag: tar.TypeSymlink, Mode: 0o777}); err != nil {
			return err
		}
	}

	for _, dir := range []string{"tmp", "proc", "sys", "dev", "etc"} {
		if err := addFolder(w, made, dir); err != nil {
			return err
		}
	}

	for _, dir := range img.Open {
		header := &tar.Header{Name: strings.TrimPrefix(dir, "/") + "/", Typeflag: tar.TypeDir, Mode: 0o777}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
	}

	for _, path := range paths {
		if err := img.addFile(w, made, path, files[path]); err != nil {
			return err
		}
	}

	for _, path := range img.Copies { // one at a time: they may be large
		text, err := os.ReadFile(path)
		if err == nil && files[strings.TrimPrefix(path, "/")] == nil {
			err = img.addFile(w, made, strings.TrimPrefix(path, "/"), text)
		}

		if err != nil {
			return err
		}
	}

	return w.Close()
}

// addFile writes a file, and the folders that it is in.
func (img *Image) addFile(w *tar.Writer, made map[string]bool, path string, text []byte) error {
	if err := addFolder(w, made, filepath.Dir(path)); err != nil {
		return err
	}

	header := &tar.Header{Name: path, Typeflag: tar.TypeReg, Mode: 0o755, Size: int64(len(text))}
	if slices.Contains(img.SetUID, "/"+path) {
		header.Mode |= 0o4000
	}

	if err := w.WriteHeader(header); err != nil {
		return err
	}

	_, err := w.Write(text)

	return err
}

// addFolder writes a folder, and those that it is in.
func addFolder(w *tar.Writer, made map[string]bool, dir string) error {
	if dir == "." || made[dir] {
		return nil
	}

	if err := addFolder(w, made, filepath.Dir(dir)); err != nil {
		return err
	}

	made[dir] = true
	mode := int64(0o755)
	if dir == "tmp" {
		mode = 0o1777
	}

	return w.WriteHeader(&tar.Header{Name: dir + "/", Typeflag: tar.TypeDir, Mode: mode})
}

// addProgram adds a program of this machine and the libraries that it needs.
func addProgram(files map[string][]byte, name string) error {
	path, err := exec.LookPath(name)
	if err != nil {
		return err
	}

	if files["bin/"+name], err = os.ReadFile(path); err != nil {
		return err
	}

	list, err := exec.Command("ldd", path).Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil // it needs none
	}
	if err != nil {
		return fmt.Errorf("find the libraries of %s: %w", name, err)
	}

	for word := range strings.FieldsSeq(string(list)) {
		if !strings.HasPrefix(word, "/") {
			continue
		}

		if files[strings.TrimPrefix(word, "/")], err = os.ReadFile(word); err != nil {
			return err
		}
	}

	return nil
}
