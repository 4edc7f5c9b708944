package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// build builds everything into r.Out.
func (r *release) build(ctx context.Context, stdout, stderr io.Writer) error {
	if err := emptyFolder(r.Out); err != nil {
		return err
	}

	var written []string
	for _, p := range r.Platforms {
		names, err := r.buildPlatform(ctx, p, stderr)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}

		written = append(written, names...)
	}

	sums, err := checksums(r.Out, written)
	if err != nil {
		return err
	}

	if err := publish(r.Out, "SHA256SUMS", []byte(sums)); err != nil {
		return err
	}

	_, err = io.WriteString(stdout, sums)

	return err
}

// publish writes a file that everybody may read.
func publish(folder, name string, content []byte) error {
	path := filepath.Join(folder, name)
	if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // published, in a folder the caller names
		return fmt.Errorf("write %s: %w", name, err)
	}

	return nil
}

// emptyFolder makes a folder and refuses one that has something in it: an old archive
// must not slip into a new release.
func emptyFolder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil { //nolint:gosec // published
		return fmt.Errorf("make the folder for the archives: %w", err)
	}

	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("read the folder for the archives: %w", err)
	}

	if len(entries) > 0 {
		return fmt.Errorf("%s is not empty: remove it first", path)
	}

	return nil
}

// buildPlatform builds archive and SBOM of one platform and returns their names.
func (r *release) buildPlatform(ctx context.Context, p platform, stderr io.Writer) ([]string, error) {
	work, err := os.MkdirTemp("", "trainyard-release-")
	if err != nil {
		return nil, fmt.Errorf("make a folder to work in: %w", err)
	}

	defer func() { _ = os.RemoveAll(work) }()

	command := filepath.Base(r.Package)
	binary := filepath.Join(work, command)
	if err := r.compileAll(ctx, p, binary, stderr); err != nil {
		return nil, err
	}

	base := fmt.Sprintf("%s-%s-%s-%s", command, r.Version, p.OS, p.Arch)

	bill, err := sbomOf(binary, r)
	if err != nil {
		return nil, err
	}

	files := []file{{name: command, path: binary, mode: 0o755}}
	for _, extra := range r.Extra {
		files = append(files, file{name: extra, path: filepath.Join(r.Source, extra), mode: 0o644})
	}

	archive, err := r.pack(base, files)
	if err != nil {
		return nil, err
	}

	contents := map[string][]byte{base + ".tar.gz": archive, base + ".cdx.json": bill}
	for name, content := range contents {
		if err := publish(r.Out, name, content); err != nil {
			return nil, err
		}
	}

	return []string{base + ".tar.gz", base + ".cdx.json"}, nil
}

// compileAll builds the command and, before it, the command of the same name with "-helper", if there is one, which it
// embeds as helper.bin under the build tag helper. Pages in the folder portal of the command are embedded under the
// build tag portal.
func (r *release) compileAll(ctx context.Context, p platform, out string, stderr io.Writer) error {
	link := fmt.Sprintf("-s -w -buildid= -X main.version=%s -X main.commit=%s", r.Version, r.Commit)

	//nolint:gosec // the package is one of the repository that the caller releases
	if _, err := os.Stat(filepath.Join(r.Source, r.Package+"-helper")); errors.Is(err, fs.ErrNotExist) {
		return r.compile(ctx, p, stderr, "-ldflags", link, "-o", out, r.Package)
	}

	embedded, err := filepath.Abs(filepath.Join(r.Source, r.Package, "helper.bin"))
	if err != nil {
		return err
	}

	err = r.compile(ctx, p, stderr, "-ldflags", "-s -w -buildid=", "-o", embedded, r.Package+"-helper")
	if err != nil {
		return err
	}

	tags := "helper"
	//nolint:gosec // the package is one of the repository that the caller releases
	if _, err := os.Stat(filepath.Join(r.Source, r.Package, "portal", "index.html")); err == nil {
		tags += ",portal"
	}

	shares, err := r.compileLibrary(ctx, p, stderr)
	if err != nil {
		return err
	}

	if shares {
		tags += ",gpushare"
	}

	return r.compile(ctx, p, stderr, "-tags", tags, "-ldflags", link, "-o", out, r.Package)
}

// compilers are the C compilers for the library that jobs share GPUs with, by architecture.
var compilers = map[string]string{"amd64": "x86_64-linux-gnu-gcc", "arm64": "aarch64-linux-gnu-gcc"}

// compileLibrary compiles that library, if the module has it and this machine a compiler for the platform, and reports
// whether it did. A binary without it does everything else.
func (r *release) compileLibrary(ctx context.Context, p platform, stderr io.Writer) (bool, error) {
	script := filepath.Join(r.Source, "native", "gpushare", "build.sh")
	//nolint:gosec // a script of the repository that the caller releases
	if _, err := os.Stat(script); errors.Is(err, fs.ErrNotExist) || p.OS != "linux" {
		return false, nil
	}

	out, err := filepath.Abs(filepath.Join(r.Source, r.Package, "gpushare.bin"))
	if err != nil {
		return false, err
	}

	compiler, err := exec.LookPath(compilers[p.Arch])
	if err != nil {
		_, err = fmt.Fprintf(stderr, "no C compiler for %s/%s: its archive cannot share GPUs\n", p.OS, p.Arch)
		return false, err
	}

	cmd := exec.CommandContext(ctx, script, out) //nolint:gosec // a script of the repository that the caller releases
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), "CC="+compiler, "SANITIZE=")

	if err := cmd.Run(); err != nil {
		return false, fmt.Errorf("compile the GPU sharing library: %w", err)
	}

	return true, nil
}

// compile builds a binary without anything of this machine in it: no paths (-trimpath), no state of the
// checkout (-buildvcs), no C (CGO_ENABLED=0), no build id, which hashes what the toolchain was called with.
func (r *release) compile(ctx context.Context, p platform, stderr io.Writer, args ...string) error {
	args = append([]string{"build", "-trimpath", "-buildvcs=false", "-mod=readonly"}, args...)
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // whoever calls it may run go build anyway
	cmd.Dir = r.Source
	cmd.Stderr = stderr
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+p.OS, "GOARCH="+p.Arch,
		"GOFLAGS=", "GOAMD64=v1", "GOARM64=v8.0", "GOEXPERIMENT=")

	if err := cmd.Run(); err != nil {
		return fmt.Errorf("go build: %w", err)
	}

	return nil
}

// file is one file of an archive.
type file struct {
	name string
	path string
	mode int64
}

// pack makes a tar.gz below one folder, with a fixed order, date and owner.
func (r *release) pack(folder string, files []file) ([]byte, error) {
	var out bytes.Buffer
	zipped, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}

	sorted := slices.Clone(files)
	slices.SortFunc(sorted, func(a, b file) int { return strings.Compare(a.name, b.name) })

	archive := tar.NewWriter(zipped)

	for _, f := range sorted {
		content, err := os.ReadFile(f.path)
		if err != nil {
			return nil, fmt.Errorf("pack: %w", err)
		}

		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: folder + "/" + f.name, Mode: f.mode, Size: int64(len(content)),
			ModTime: r.Time, Uname: "root", Gname: "root", Format: tar.FormatPAX,
		}

		if err := archive.WriteHeader(header); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}

		if _, err := archive.Write(content); err != nil {
			return nil, fmt.Errorf("pack %s: %w", f.name, err)
		}
	}

	if err := archive.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}

	if err := zipped.Close(); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}

	return out.Bytes(), nil
}

// checksums lists the digests of files as sha256sum -c reads them.
func checksums(folder string, names []string) (string, error) {
	var out strings.Builder
	for _, name := range slices.Sorted(slices.Values(names)) {
		content, err := os.ReadFile(filepath.Join(folder, name)) //nolint:gosec // names are those that were written
		if err != nil {
			return "", fmt.Errorf("checksum: %w", err)
		}

		fmt.Fprintf(&out, "%x  %s\n", sha256.Sum256(content), name)
	}

	return out.String(), nil
}
