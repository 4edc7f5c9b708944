package walls_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"trainyard/internal/api"
	"trainyard/internal/job"
	"trainyard/test/podman"
	"trainyard/test/yardtest"
)

// The user ids of these attacks: what blocks the metadata service in the network of a container is of that alone, but
// the agent also blocks it on the machine.
const containerUIDs = "311000-311099"

// containerYard is a yard with one node that runs containers, whose agent has more flags.
func containerYard(t *testing.T, flags ...string) (*yard, *podman.Engine) {
	t.Helper()
	needRoot(t)

	engine := podman.Start(t)

	t.Cleanup(func() { yardtest.Unblock(containerUIDs) })
	yardtest.Unblock(containerUIDs)

	y := newYard(t)
	flags = append([]string{"--isolation", "users", "--job-uids", containerUIDs, "--container-socket", engine.Socket}, flags...)
	y.rootAgent(t, "north", flags...)

	return y, engine
}

// contained is a job file that runs a shell script in a container.
func contained(image string, lines ...string) string {
	return script(lines...) + "image: " + image + "\n"
}

// reads submits a job file, waits for its end and returns what the job printed, and how it ended.
func (u *user) reads(t *testing.T, file string) (string, api.JobDetail) {
	t.Helper()
	j := u.submit(t, file)
	d := u.ended(t, j)

	return u.output(t, j), d
}

// TestS22_AJobInAContainerHasNoPrivileges has mallory bring an image with a shell that has the rights of root.
func TestS22_AJobInAContainerHasNoPrivileges(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)

	image := engine.Push(t, "evil:1", podman.Image{Programs: podman.Programs, SetUID: []string{"/bin/bash", "/bin/cat"}})
	out, _ := y.user(t, "mallory").reads(t, contained(image,
		"id -u", "bash -p -c 'id -u'", "cat /proc/1/root/etc/shadow /proc/1/environ || true",
		"mknod /tmp/disk b 254 0 && echo made a device || true", "mount -t tmpfs none /tmp && echo mounted || true",
		"unshare -m true && echo unshared || true", "unshare -Ur true && echo unshared || true",
		"kill -9 1 && ls /proc/1/fd && echo killed || true", "chown 0 /tmp && echo changed || true",
		"ls /.trainyard", "touch /bin/new && echo wrote || true", "echo done"))

	for _, bad := range []string{"root:", "made a device", "mounted", "unshared", "killed", "changed", "wrote", "\n0\n", "hold"} {
		if strings.Contains("\n"+out, bad) {
			t.Errorf("a job in a container gave %q:\n%s", bad, out)
		}
	}

	if !strings.Contains(out, "done") {
		t.Errorf("the attack did not come to its end:\n%s", out)
	}
}

// TestS22_LinksOfAnImageLeadNowhere has mallory bring an image with a link in the place of a directory that is mounted.
// The process that mounts it is root and has the files of the machine.
func TestS22_LinksOfAnImageLeadNowhere(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)

	outside := filepath.Join(y.Folder, "outside")
	must(t, os.Mkdir(outside, 0o700))

	image := engine.Push(t, "links:1", podman.Image{
		Programs: podman.Programs, Links: map[string]string{"/var": "/proc/1/root" + outside},
	})
	mallory := y.user(t, "mallory")
	j := mallory.submit(t, contained(image, "echo started; ls /var/tmp"))
	var run api.Run

	y.await(t, "the run has ended", func() bool { // the job waits for another node
		d, err := mallory.Job(t.Context(), j)
		must(t, err)

		if len(d.Runs) > 0 {
			run = d.Runs[0]
		}

		return run.State == job.RunEnded
	})

	out := mallory.output(t, j)
	entries, err := os.ReadDir(outside)
	must(t, err)

	if len(entries) != 0 || strings.Contains(out, "started") {
		t.Errorf("a link of the image led to the machine: %v, output %q", entries, out)
	}

	if reason := run.Ranks[0].Reason; !strings.Contains(reason, "symbolic links") {
		t.Errorf("the run ended with %q", reason)
	}
}

// TestS22_JobsInContainersSeeNothingOfOthers has mallory look for alice from a container, and for a container of hers
// from a process.
func TestS22_JobsInContainersSeeNothingOfOthers(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)
	image := engine.Push(t, "shell:1", podman.Shell())
	alice, mallory := y.user(t, "alice"), y.user(t, "mallory")

	victim := alice.submit(t, contained(image,
		"umask 0; echo treasure | tee f $HOME/f /tmp/f /dev/shm/f $XDG_CACHE_HOME/f", "echo at $PWD", "exec sleep 1000"))
	y.await(t, "alice's job to run", func() bool {
		return strings.Contains(alice.output(t, victim), "at /")
	})

	dir := strings.TrimSpace(strings.SplitN(alice.output(t, victim), "at ", 2)[1])
	attack := []string{
		"for d in " + dir + " " + filepath.Dir(dir) + "/home /tmp /dev/shm /proc/*/root/tmp /proc/*/cwd; do cat $d/f; done 2>/dev/null || true",
		"grep -al treasure /proc/*/environ /proc/*/cmdline 2>/dev/null || true",
		"ls -d /proc/[0-9]* | wc -l", "kill -9 -1 2>/dev/null || true",
	}

	for _, file := range []string{contained(image, attack...), script(attack...)} {
		if out, _ := mallory.reads(t, file); strings.Contains(out, "treasure") {
			t.Errorf("mallory found what belongs to alice:\n%s", out)
		}
	}

	if j, err := alice.Job(t.Context(), victim); err != nil || j.State.Final() {
		t.Errorf("alice's job is %s: %v", j.State, err)
	}
}

// TestS22_ContainersCannotReachTheMetadataService has mallory ask the cloud for the credentials of the node from a
// container, which has a network of its own.
func TestS22_ContainersCannotReachTheMetadataService(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)
	image := engine.Push(t, "shell:1", podman.Shell())

	out, _ := y.user(t, "mallory").reads(t, contained(image,
		"id -u", "bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>&1 || true"))
	if !strings.Contains(out, "3110") || !strings.Contains(out, "Permission denied") {
		t.Errorf("a connection to the metadata service gave %q", out)
	}
}

// server is a program that answers with what it is sent, and a word of its own.
const server = `package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:"+os.Args[1])
	if err != nil {
		panic(err)
	}

	fmt.Println("ready", l.Addr().(*net.TCPAddr).Port)

	for {
		c, err := l.Accept()
		if err != nil {
			panic(err)
		}

		text, _ := io.ReadAll(c)
		fmt.Fprintf(c, "contained %s", text)
		c.Close()
	}
}
`

// buildServer builds it so that it needs nothing of its image.
func buildServer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "main.go"), []byte(server), 0o600))

	cmd := exec.CommandContext(t.Context(), "go", "build", "-o", "server", "main.go")
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0")

	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build a server: %v: %s", err, out)
	}

	text, err := os.ReadFile(filepath.Join(dir, "server"))
	must(t, err)

	return string(text)
}

// TestS22_PeopleEnterContainersInsideTheWalls compares what a command in a container has with what its program has,
// copies files to and from it, and connects to a port of its network.
func TestS22_PeopleEnterContainersInsideTheWalls(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)
	ada := y.user(t, "ada")
	image := engine.Push(t, "server:1", podman.Image{
		Programs: podman.Programs, Files: map[string]string{"/bin/server": buildServer(t)},
	})

	look := "id -u; id -un; pwd; uname -n; echo $HOME $TRAINYARD_JOB_ID; ls /;" +
		"for n in pid mnt ipc net uts user; do readlink /proc/self/ns/$n; done; cat /proc/self/cgroup;" +
		"grep -E 'NoNewPrivs|Seccomp:|Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status"
	j := ada.submit(t, contained(image, "sleep 1", look, "echo end", "exec server 7070"))
	y.await(t, "the server listens", func() bool { return strings.Contains(ada.output(t, j), "ready") })

	program, _, _ := strings.Cut(ada.output(t, j), "end\n")
	if got := ada.must(t, "exec", string(j), "--", "sh", "-c", look); got != program || !strings.Contains(got, "NoNewPrivs") {
		t.Errorf("the program has\n%s\nand a command in its container\n%s", program, got)
	}

	file := filepath.Join(t.TempDir(), "f")
	must(t, os.WriteFile(file, []byte("carried"), 0o600))
	ada.must(t, "cp", file, string(j)+":f")

	if got := ada.must(t, "exec", string(j), "--", "cat", "f"); got != "carried" {
		t.Errorf("a copied file has %q", got)
	}

	if got, notes := ada.talks(t, j, 7070, "hello"); got != "contained hello" {
		t.Errorf("a port of the container gave %q: %s", got, notes)
	}

	// The same port of the machine is another one, and so are those of the yard.
	if got, notes := ada.talks(t, j, 22, "hello"); got != "" || !strings.Contains(notes, "listens on port") {
		t.Errorf("a port that nobody in the container listens on gave %q: %s", got, notes)
	}
}

// TestS22_ContainersWithTheNetworkOfTheNodeHaveItsWalls gives containers the network of the machine, in which there are
// the metadata service of clouds and the ports of others.
func TestS22_ContainersWithTheNetworkOfTheNodeHaveItsWalls(t *testing.T) {
	t.Parallel()

	const uids = "311100-311199" // other tests unblock theirs when they end

	t.Cleanup(func() { yardtest.Unblock(uids) })

	y, engine := containerYard(t, "--container-network", "host", "--job-uids", uids)
	ada := y.user(t, "ada")
	image := engine.Push(t, "server:1", podman.Image{
		Programs: podman.Programs, Files: map[string]string{"/bin/server": buildServer(t)},
	})

	j := ada.submit(t, contained(image, "readlink /proc/self/ns/net",
		"bash -c 'exec 3<>/dev/tcp/169.254.169.254/80' 2>&1 || true", "exec server 0"))
	y.await(t, "the server listens", func() bool { return strings.Contains(ada.output(t, j), "ready ") })

	out := ada.output(t, j)
	ours, err := os.Readlink("/proc/self/ns/net")
	must(t, err)

	if !strings.Contains(out, ours) || !strings.Contains(out, "Permission denied") {
		t.Errorf("a container with the network of the machine, %s, gave %q", ours, out)
	}

	_, text, _ := strings.Cut(out, "ready ")
	port, err := strconv.Atoi(strings.TrimSpace(text))
	must(t, err)

	if got, notes := ada.talks(t, j, port, "hello"); got != "contained hello" {
		t.Errorf("the port of the job gave %q: %s", got, notes)
	}

	_, text, _ = strings.Cut(y.Address, ":")
	port, err = strconv.Atoi(text)
	must(t, err)

	if got, notes := ada.talks(t, j, port, "hello"); got != "" || !strings.Contains(notes, "listens on port") {
		t.Errorf("the port of the server gave %q: %s", got, notes)
	}

	_, err = ada.CancelJob(t.Context(), j)
	must(t, err)
	ada.ended(t, j)
	y.await(t, "no container is left", func() bool { return len(engine.Containers(t)) == 0 })
}

// TestS22_AContainerOutlivesItsAgent kills the agent, and starts it again.
func TestS22_AContainerOutlivesItsAgent(t *testing.T) {
	t.Parallel()
	y, engine := containerYard(t)
	ada := y.user(t, "ada")
	image := engine.Push(t, "shell:1", podman.Shell())
	j := ada.submit(t, contained(image, "echo ready; until [ -e go ]; do sleep 0.05; done; echo over; exit 4"))
	y.await(t, "the job runs", func() bool { return strings.Contains(ada.output(t, j), "ready") })

	must(t, y.agents["north"].Kill())
	p, err := y.StartAgent("north", "", "--isolation", "users", "--job-uids", containerUIDs, "--container-socket",
		engine.Socket)
	must(t, err)

	y.agents["north"] = p

	y.await(t, "the agent is back", func() bool {
		return ada.types(t, "exec", string(j), "--", "true").code == 0
	})
	ada.types(t, "exec", string(j), "--", "touch", "go") // it may be killed with the container, which ends by it

	d := ada.ended(t, j)
	run := d.Runs[len(d.Runs)-1]

	if len(d.Runs) != 1 || run.Ranks[0].ExitCode == nil || *run.Ranks[0].ExitCode != 4 {
		t.Errorf("the job ended with %+v", d.Runs)
	}

	if !strings.Contains(run.Ranks[0].Digest, "/shell@sha256:") {
		t.Errorf("the image of the run is %q", run.Ranks[0].Digest)
	}

	if out := ada.output(t, j); !strings.Contains(out, "over") {
		t.Errorf("output %q", out)
	}

	y.await(t, "no container is left", func() bool { return len(engine.Containers(t)) == 0 })

	if out := ada.must(t, "job", string(j)); !strings.Contains(out, "Image of "+string(run.ID)) {
		t.Errorf("trainyard job says\n%s", out)
	}
}
