package runtime

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"trainyard/internal/agent/runtime/rundir"
	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/internal/logs"
)

const (
	plantedToken = "planted-token-4711"
	plantedKey   = "-----BEGIN-----\nplanted-line-0815\n-----END-----\n"
)

// secretive returns a run of a command that gets two secrets.
func (y *yard) secretive(l api.Launch) rundir.Spec {
	l.Secrets = []string{"TOKEN", "KEY:file"}
	s := y.spec(l)
	s.Secrets = []api.SecretValue{
		{Name: "TOKEN", Value: plantedToken},
		{Name: "KEY", Value: plantedKey, File: true},
	}

	return s
}

func digest(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

// found lists the files below a directory that contain a text.
func found(t *testing.T, dir, text string) []string {
	t.Helper()

	var list []string
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}

		data, err := os.ReadFile(path)
		if bytes.Contains(data, []byte(text)) {
			list = append(list, path)
		}

		return err
	})
	if err != nil {
		t.Fatal(err)
	}

	return list
}

// commandLines returns the arguments of all processes of the machine.
func commandLines(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}

	var all strings.Builder
	for _, path := range paths {
		data, _ := os.ReadFile(path) // it may have ended
		all.Write(append(data, '\n'))
	}

	return all.String()
}

func TestAProgramGetsItsSecretsAndTheDiskDoesNot(t *testing.T) {
	t.Parallel()
	programGetsSecrets(t, newYard(t))
}

func TestAProgramWithAUserOfItsOwnGetsItsSecrets(t *testing.T) {
	t.Parallel()
	programGetsSecrets(t, newYard(t, isolated(t)))
}

// programGetsSecrets lets a program check and print its secrets, and searches the disk for them.
func programGetsSecrets(t *testing.T, y *yard) {
	t.Helper()
	ready, proceed := pipe(t), pipe(t)

	s := y.secretive(api.Launch{Setup: "echo in the set-up: $TOKEN", Command: fmt.Sprintf(
		`[ "$(printf %%s "$TOKEN" | sha256sum)" = "%s  -" ] && [ "$(sha256sum < "$KEY")" = "%s  -" ] || exit 3
[ "$(stat -c %%a "$KEY")" = 400 ] || exit 4
printf "${TOKEN:0:10}"; printf "${TOKEN:10}\n"; cat "$KEY" >&2
echo ready > %s; read x < %s
echo "failed with $TOKEN"; exit 7`, digest(plantedToken), digest(plantedKey), ready, proceed)})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	receive(t, ready)

	if list := found(t, y.dir, plantedToken); len(list) > 0 {
		t.Errorf("the token is in %v", list)
	}
	if list := found(t, y.dir, "planted-line-0815"); len(list) != 1 || list[0] != filepath.Join(y.runDir(s.Run),
		"secrets", "KEY") {
		t.Errorf("the key is in %v, want it in its file alone", list)
	}
	if all := commandLines(t); strings.Contains(all, plantedToken) || strings.Contains(all, "planted-line-0815") {
		t.Error("a secret is in the arguments of a process")
	}

	supervisor, err := rundir.LockHolder(y.runDir(s.Run))
	if err != nil {
		t.Fatal(err)
	}
	if input, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/0", supervisor)); err != nil || input != os.DevNull {
		t.Errorf("the supervisor keeps %s open (%v), in which it got the secrets", input, err)
	}

	y.reopen() // a restart of the agent loses nothing
	release(t, proceed)
	end := y.end(s.Run)
	check(t, end, 7, "", job.CauseUserCode, false, "***") // which stream was written last is not certain

	out := y.output(s.Run)
	if want := "in the set-up: ***\n***\nfailed with ***\n"; out[logs.Stdout] != want {
		t.Errorf("standard output is %q, want %q", out[logs.Stdout], want)
	}
	if out[logs.Stderr] != "***" {
		t.Errorf("standard error is %q, want the key masked", out[logs.Stderr])
	}

	for _, text := range []string{plantedToken, "planted-line-0815"} {
		if list := found(t, y.dir, text); len(list) > 0 {
			t.Errorf("after the end %s is in %v", text, list)
		}
	}
}

// TestSecretsComeAgainAfterARestartBeforeTheStart is about an agent that dies while it fetches the files of a run: the
// secrets that it had are gone, and the server sends them again.
func TestSecretsComeAgainAfterARestartBeforeTheStart(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.secretive(api.Launch{Command: `[ ${#TOKEN} = 18 ] && [ -s "$KEY" ]`})

	rk, err := y.createRunDir(s) // as far as the first agent came
	if err != nil {
		t.Fatal(err)
	}

	if list := found(t, rk.dir, "planted"); len(list) > 0 {
		t.Errorf("secrets are in %v", list)
	}

	y.reopen()

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	check(t, y.end(s.Run), 0, "", "", false, "")
}

func TestARunWithoutItsSecretsIsNotStarted(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.secretive(api.Launch{Command: "true"})
	s.Secrets = s.Secrets[:1]

	if err := y.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "names 2 secrets, and 1 were sent") {
		t.Errorf("error %v", err)
	}
}

// TestSecretFilesOfAKilledSupervisorAreRemoved is about what is left when nobody ends a run in order.
func TestSecretFilesOfAKilledSupervisorAreRemoved(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	ready := pipe(t)
	s := y.secretive(api.Launch{Command: "echo ready > " + ready + "; exec sleep 1000"})
	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	receive(t, ready)

	supervisor, err := rundir.LockHolder(y.runDir(s.Run))
	if err == nil {
		err = unix.Kill(supervisor, unix.SIGKILL)
	}

	if err != nil {
		t.Fatal(err)
	}

	check(t, y.end(s.Run), 0, "", job.CauseSupervisorLost, false, "")

	if list := found(t, y.dir, "planted"); len(list) > 0 {
		t.Errorf("secrets are in %v", list)
	}
}

// TestSecretsInAReportOfTheSDKAreMasked is about a reason that does not come from the output.
func TestSecretsInAReportOfTheSDKAreMasked(t *testing.T) {
	t.Parallel()
	y := newYard(t)
	s := y.secretive(api.Launch{Command: `echo '{"note":"out_of_memory","device":"host","text":"no room for '$TOKEN'"}' >> ` +
		`"$TRAINYARD_METRICS_FILE"; exit 1`})

	if err := y.Start(t.Context(), s); err != nil {
		t.Fatal(err)
	}

	if end := y.end(s.Run); !strings.Contains(end.Reason, "no room for ***") {
		t.Errorf("reason %q", end.Reason)
	}
}
