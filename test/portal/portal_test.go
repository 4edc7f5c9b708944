// Package portal tests the portal in Chromium against a yard with real jobs: the binary is built with the pages,
// started with trainyard up, and web/tests drives the browser.
package portal

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"trainyard/internal/agent/share/sharetest"
	"trainyard/test/yardtest"
)

// patience bounds a hang.
const patience = 5 * time.Minute

// root is the repository.
const root = "../.."

// need returns the path of a program. Without it the test is skipped, except in CI.
func need(t *testing.T, name string) string {
	t.Helper()

	path, err := exec.LookPath(name)
	if err != nil && os.Getenv("CI") == "true" {
		t.Fatalf("%s is missing, and CI=true allows no skipping", name)
	}
	if err != nil {
		t.Skipf("%s is missing: run scripts/setup.sh test", name)
	}

	return path
}

// do runs a command in a folder and returns what it printed.
func do(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, env

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", filepath.Base(name), strings.Join(args, " "), err, out)
	}

	return string(out)
}

// build makes a binary with the pages and with the library that divides GPUs, which is in a folder with a fake driver.
func build(t *testing.T, folder, driver string) string {
	t.Helper()
	need(t, "gcc")

	if err := sharetest.Build(t.Context(), driver, ""); err != nil {
		t.Fatal(err)
	}

	overlay, err := sharetest.Overlay(driver)
	if err != nil {
		t.Fatal(err)
	}

	if _, err := os.Stat(filepath.Join(root, "web", "node_modules")); err != nil {
		do(t, root, nil, "scripts/setup-web.sh")
	}

	do(t, filepath.Join(root, "web"), nil, need(t, "npm"), "run", "--silent", "build")
	binary := filepath.Join(folder, "trainyard")
	do(t, root, append(os.Environ(), "CGO_ENABLED=0"), "go", "build", "-trimpath", "-tags", "portal,gpushare",
		"-overlay", overlay, "-ldflags", "-s -w", "-o", binary, "./cmd/trainyard")

	return binary
}

// firstScreen is how much a browser may have to load before it shows something, compressed.
const firstScreen = 300 << 10

// loadedFirst adds up what index.html refers to.
func loadedFirst(t *testing.T) int64 {
	t.Helper()

	names, err := filepath.Glob(filepath.Join(root, "cmd", "trainyard", "portal", "assets", "index-*.gz"))
	if err != nil || len(names) == 0 {
		t.Fatalf("the build has no files: %v", err)
	}

	var size int64

	for _, name := range names {
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}

		size += info.Size()
	}

	return size
}

var link = regexp.MustCompile(`http://127\.0\.0\.1:\d+/#code=\w+`)

// TestPortal runs each file of web/tests against a yard of its own.
func TestPortal(t *testing.T) {
	t.Parallel()

	driver := t.TempDir()
	tools := tools{
		node: need(t, "node"), chromium: need(t, "chromium-headless-shell"), driver: driver,
		binary: build(t, t.TempDir(), driver),
	}

	if size := loadedFirst(t); size > firstScreen {
		t.Errorf("the first screen is %d bytes compressed, more than %d", size, firstScreen)
	}

	files, err := filepath.Glob(filepath.Join(root, "web", "tests", "*.test.mjs"))
	if err != nil || len(files) == 0 {
		t.Fatalf("web/tests has no tests: %v", err)
	}

	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".test.mjs"), func(t *testing.T) {
			t.Parallel()
			tools.run(t, "tests/"+name)
		})
	}
}

// TestUnits runs what is tested of the portal without a browser.
func TestUnits(t *testing.T) {
	t.Parallel()
	do(t, filepath.Join(root, "web"), nil, need(t, "npm"), "run", "--silent", "test")
}

// tools are the programs that a test needs, and the folder with the driver of a fake GPU that jobs can share.
type tools struct {
	node, chromium, binary, driver string
}

var (
	flagsLine  = regexp.MustCompile(`(?m)^// up: (.+)$`)
	sharedLine = regexp.MustCompile(`(?m)^// gpu: shared$`)
)

// wishes returns what a file of tests wants for its yard: further flags of up, as in "// up: --tariff
// TESTS/tariff.yaml", where TESTS is the folder of the tests, and with "// gpu: shared" a GPU that jobs can share.
func wishes(t *testing.T, file string) (flags []string, shared bool) {
	t.Helper()

	path, err := filepath.Abs(filepath.Join(root, "web", file))
	if err != nil {
		t.Fatal(err)
	}

	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}

	if line := flagsLine.FindSubmatch(text); line != nil {
		flags = strings.Fields(strings.ReplaceAll(string(line[1]), "TESTS", filepath.Dir(path)))
	}

	return flags, sharedLine.Match(text)
}

// run starts a yard and runs a file of tests against it.
func (tools tools) run(t *testing.T, file string) {
	t.Helper()

	folder, err := yardtest.NewFolder("portal-")
	if err != nil {
		t.Fatal(err)
	}

	t.Cleanup(func() {
		if err := yardtest.KillAll(folder); err != nil {
			t.Error(err)
		}

		if !t.Failed() {
			_ = os.RemoveAll(folder)
		}
	})

	me, err := yardtest.NewPerson(tools.binary, folder, "me")
	if err != nil {
		t.Fatal(err)
	}

	address, err := yardtest.FreeAddress(t.Context())
	if err != nil {
		t.Fatal(err)
	}

	flags, shared := wishes(t, file)

	demo := slices.Contains(flags, "--demo") // which has nodes of its own
	if !demo {
		flags = append(flags, "--name", "here", "--report-every", "200ms")
	}

	switch {
	case shared: // GPUs of --fake-gpus have no driver
		gpu := sharetest.New(t, 64<<30, tools.driver)
		me.Vars = append(me.Vars, "PATH="+tools.driver+":"+os.Getenv("PATH"), "FAKE_GPU="+gpu.Env()["FAKE_GPU"],
			"FAKE_DRIVER="+tools.driver)
		flags = append(flags, "--probe", "off")
	case !demo:
		flags = append(flags, "--fake-gpus", "4xA100:80GB")
	}

	log := filepath.Join(folder, "up.log")
	up, err := yardtest.Start(me.Command(t.Context(), append([]string{
		"up", "--data", filepath.Join(folder, "data"), "--listen", address,
	}, flags...)...), log)
	if err != nil {
		t.Fatal(err)
	}

	ctx, cancel := beforeDeadline(t)
	defer cancel()

	cmd := exec.CommandContext(ctx, tools.node, "--test", "--test-concurrency=1", file)
	cmd.WaitDelay = time.Second // its browser may outlive it
	cmd.Dir = filepath.Join(root, "web")
	cmd.Env = append(append([]string{}, me.Vars...), "PORTAL_LINK="+waitForLink(t, up, log), "PORTAL_BINARY="+me.Binary,
		"PORTAL_CHROMIUM="+tools.chromium, "PORTAL_SHOTS="+os.Getenv("PORTAL_SHOTS"),
		"PORTAL_LOOKS="+os.Getenv("PORTAL_LOOKS"))

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%s failed: %v\n%s\nthe yard said:\n%s", file, err, out, yardtest.Tail(log, 20))
	}

	if code, err := up.Stop(patience); err != nil || code != 0 {
		t.Errorf("the yard ended with code %d (%v)", code, err)
	}
}

// beforeDeadline returns a context that ends early enough before the test has to: what has failed by then is printed.
func beforeDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()

	end, ok := t.Deadline()
	if !ok {
		return context.WithCancel(t.Context())
	}

	return context.WithDeadline(t.Context(), end.Add(-30*time.Second))
}

// waitForLink returns the link that a yard prints, once it is ready.
func waitForLink(t *testing.T, up *yardtest.Process, log string) string {
	t.Helper()

	first := ""
	for end := time.Now().Add(patience); first == "" || !strings.Contains(yardtest.Tail(log, 100), "Ctrl-C stops"); {
		select {
		case <-up.Gone():
			t.Fatalf("the yard ended: %s", yardtest.Tail(log, 30))
		case <-time.After(50 * time.Millisecond):
		}

		if time.Now().After(end) {
			t.Fatalf("no link was printed: %s", yardtest.Tail(log, 30))
		}

		first = link.FindString(yardtest.Tail(log, 100))
	}

	return first
}
