package metadata_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"trainyard/internal/agent/metadata"
)

// TestMain is also the process in a network of its own: it blocks the service twice, then says what becomes of
// connections of several users.
func TestMain(m *testing.M) {
	switch os.Getenv("METADATA_TEST") {
	case "network":
		os.Exit(inNetwork())
	case "user":
		os.Exit(connect())
	}

	os.Exit(m.Run())
}

// The user ids that are blocked.
const first, last = 200000, 265535

func inNetwork() int {
	if err := exec.Command("ip", "link", "set", "lo", "up").Run(); err != nil {
		fmt.Println("set up the network:", err)
		return 1
	}

	before, err := metadata.Look(200001)
	fmt.Println("before:", before, err)

	for range 2 {
		if err := metadata.Block(first, last); err != nil {
			fmt.Println(err)
			return 1
		}
	}

	for _, user := range []uint32{199999, 200000, 265535, 265536} {
		reach, err := metadata.Look(int(user))
		fmt.Println(user, reach, err)

		cmd := exec.Command("/proc/self/exe")
		cmd.Env = []string{"METADATA_TEST=user"}
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: user, Gid: user}}

		if err := cmd.Run(); err != nil {
			fmt.Println(err)
			return 1
		}
	}

	return 0
}

// services are where the clouds say that their metadata services are.
var services = []string{
	"169.254.169.254:80", "[fd00:ec2::254]:80", "[fd20:ce::254]:80", "169.254.170.2:80", "169.254.170.23:80",
	"168.63.129.16:80", "168.63.129.16:32526", "100.100.100.200:80",
}

// nameserver is at the address of a service, and is not blocked.
const nameserver = "169.254.169.254:53"

// connect says what becomes of connections to the services, and to something else at the same address.
func connect() int {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	for _, at := range append(services, nameserver) {
		c, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)

		what := "refused otherwise"
		switch {
		case err == nil:
			what = "connected"
			_ = c.Close()
		case errors.Is(err, syscall.EACCES):
			what = "blocked"
		}

		fmt.Println(" ", at, what)
	}

	return 0
}

// TestJobsCannotReachTheMetadataService blocks it in a network namespace without any route, and connects as users
// within the range and outside: the kernel refuses a blocked connection for another reason than one for which
// there is no route.
func TestJobsCannotReachTheMetadataService(t *testing.T) {
	t.Parallel()

	if os.Geteuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root to make a network namespace")
		}

		t.Skip("needs root to make a network namespace")
	}

	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(os.Environ(), "METADATA_TEST=network")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}

	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	var free, blocked string
	for _, at := range services {
		free += "  " + at + " refused otherwise\n"
		blocked += "  " + at + " blocked\n"
	}

	free += "  " + nameserver + " refused otherwise\n"
	blocked += "  " + nameserver + " refused otherwise\n"

	want := "before: no route <nil>\n" +
		"199999 no route <nil>\n" + free + "200000 blocked <nil>\n" + blocked + "265535 blocked <nil>\n" + blocked +
		"265536 no route <nil>\n" + free
	if got := string(out); strings.TrimSpace(got) != strings.TrimSpace(want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
