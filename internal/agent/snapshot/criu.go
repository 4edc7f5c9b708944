package snapshot

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"trainyard/internal/agent/sandbox"
)

// oldest is the first version of CRIU that is used. Version 3.17 fails on current kernels.
var oldest = [2]int{4, 0}

const (
	dumpLog    = "dump.log"
	restoreLog = "restore.log"
	// checkTimeout bounds the check of CRIU, which takes less than a second.
	checkTimeout = 20 * time.Second
)

// common are the options of dump and restore.
//
//   - cgroups belong to the supervisor, which puts the restored program into that of its own run.
//   - TCP connections are not kept: the other end does not wait, and may be on another machine.
//   - Files that the program opened and removed are part of the image.
//   - CRIU's plugins are not loaded: the driver's state is saved before CRIU is called.
func common(images string) []string {
	return []string{
		"--images-dir", images, "--libdir", images, "--manage-cgroups=ignore", "--tcp-close", "--ext-unix-sk",
		"--file-locks", "--link-remap", "--ghost-limit", "1G",
	}
}

// dumpArgs returns the arguments with which CRIU saves a process and its descendants, and leaves them stopped.
func dumpArgs(images string, pid int) []string {
	args := []string{"dump", "--tree", strconv.Itoa(pid), "--leave-stopped", "--log-file", dumpLog}
	return append(args, common(images)...)
}

// restoreArgs returns the arguments with which CRIU restores processes as children of its own parent. The descriptors
// are connected to the output of the program.
func restoreArgs(images string, pipes [2]string, fds [2]int) []string {
	args := []string{"restore", "--restore-detached", "--restore-sibling", "--log-file", restoreLog}
	args = append(args, common(images)...)
	for i, fd := range fds {
		args = append(args, "--inherit-fd", fmt.Sprintf("fd[%d]:%s", fd, pipes[i]))
	}

	return args
}

// criuPath is where CRIU finds the programs that it calls, those of networks.
const criuPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// criuCommand runs CRIU in a space.
func criuCommand(path string, args []string) sandbox.Command {
	return sandbox.Command{Path: path, Args: args, Env: []string{"PATH=" + criuPath}}
}

// criuVersion returns the version of a CRIU. It fails if it is too old.
func criuVersion(ctx context.Context, command Command, path string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	out, err := command.output(ctx, path, "--version")
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", path, err)
	}

	// Compiled here because every supervisor would pay for it at its start.
	m := regexp.MustCompile(`(?m)^Version: (\d+)\.(\d+)(\S*)`).FindSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s --version: unexpected answer %.80q", path, out)
	}

	major, _ := strconv.Atoi(string(m[1])) // the expression allows digits only
	minor, _ := strconv.Atoi(string(m[2]))
	found := fmt.Sprintf("%d.%d%s", major, minor, m[3])
	if major < oldest[0] || major == oldest[0] && minor < oldest[1] {
		return found, fmt.Errorf("CRIU %s is too old, %d.%d or newer is needed", found, oldest[0], oldest[1])
	}

	return found, nil
}

// checkCRIU asks CRIU whether this kernel has what it needs.
func checkCRIU(ctx context.Context, path string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()

	out, err := exec.CommandContext(ctx, path, "check").CombinedOutput()
	if err == nil {
		return nil
	}

	if lines := complaints(string(out)); lines != "" {
		return fmt.Errorf("criu check: %s", lines)
	}

	return fmt.Errorf("criu check: %w", err)
}

// complaints returns the first errors in a log of CRIU, as one line. The later ones follow from them.
func complaints(log string) string {
	// A line in which it reports an error. Compiled here because every supervisor would pay for it at its start.
	complaint := regexp.MustCompile(`^(?:\([0-9.]+\) +)?(?:\d+: )?Error \([^)]*\): (.*)`)

	var found []string
	lines := bufio.NewScanner(strings.NewReader(log))
	for lines.Scan() && len(found) < 3 {
		m := complaint.FindStringSubmatch(lines.Text())
		// It tries to raise its limit of open files, and goes on without.
		if m != nil && !strings.Contains(m[1], "RLIMIT_NOFILE") {
			found = append(found, strings.TrimSpace(m[1]))
		}
	}

	return strings.Join(found, "; ")
}

// criuFailed returns the error of a CRIU that has ended with a status, with what its log says.
func criuFailed(verb, images, log string, status int) error {
	text, err := os.ReadFile(filepath.Join(images, log))
	if lines := complaints(string(text)); lines != "" {
		return fmt.Errorf("criu %s: %s", verb, lines)
	}

	if err != nil {
		return errors.Join(fmt.Errorf("criu %s failed with exit code %d", verb, status), err)
	}

	return fmt.Errorf("criu %s failed with exit code %d", verb, status)
}
