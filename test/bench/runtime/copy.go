package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"trainyard/test/yardtest"
)

// copied is the size of the file that is copied to a job and back.
const copied = 1 << 30

// measureCopy copies a file to a job and back with trainyard cp, and to another folder and back with scp over loopback.
func measureCopy(ctx context.Context, b *bench) error {
	j, _, err := b.running(ctx)
	if err != nil {
		return err
	}

	size := b.size(copied)
	file := filepath.Join(b.folder, "random")

	if err := writeRandom(file, size); err != nil {
		return err
	}

	server, err := startSSH(ctx, b.folder)
	if err != nil {
		return err
	}

	defer server.stop()

	there := filepath.Join(b.folder, "there")
	if err := os.MkdirAll(there, 0o700); err != nil {
		return err
	}

	var ours, theirs time.Duration

	for _, m := range []struct {
		into *time.Duration
		run  func() (time.Duration, error)
	}{
		{&ours, func() (time.Duration, error) { return b.types(ctx, "cp", file, string(j)+":copy") }},
		{&ours, func() (time.Duration, error) {
			return b.types(ctx, "cp", string(j)+":copy", filepath.Join(b.folder, "back"))
		}},
		{&theirs, func() (time.Duration, error) { return server.copy(ctx, file, server.path(there)+"/copy") }},
		{&theirs, func() (time.Duration, error) {
			return server.copy(ctx, server.path(there)+"/copy", filepath.Join(b.folder, "back2"))
		}},
	} {
		took, err := m.run()
		if err != nil {
			return err
		}

		*m.into += took
	}

	for _, name := range []string{"back", "back2"} {
		info, err := os.Stat(filepath.Join(b.folder, name))
		if err != nil {
			return err
		}

		if info.Size() != size {
			return fmt.Errorf("%s has %d bytes of %d", name, info.Size(), size)
		}
	}

	b.figures["cp_mb_s"] = float64(2*size) / 1e6 / ours.Seconds()
	b.figures["scp_mb_s"] = float64(2*size) / 1e6 / theirs.Seconds()
	b.figures["cp_vs_scp_pct"] = 100 * theirs.Seconds() / ours.Seconds()

	return b.end(ctx, j)
}

// writeRandom writes a file that cannot be compressed.
func writeRandom(path string, size int64) error {
	f, err := os.Create(filepath.Clean(path))
	if err != nil {
		return err
	}

	_, err = io.CopyN(f, rand.NewChaCha8([32]byte{1}), size)

	return errors.Join(err, f.Close())
}

// sshServer is an SSH server on this machine with keys of its own.
type sshServer struct {
	folder, port string
	process      *yardtest.Process
}

// startSSH starts an SSH server that lets this user in by a key.
func startSSH(ctx context.Context, folder string) (*sshServer, error) {
	sshd, err := exec.LookPath("sshd")
	if err != nil {
		sshd, err = exec.LookPath("/usr/sbin/sshd")
	}
	if err != nil {
		return nil, fmt.Errorf("scp needs a server: on Debian, apt-get install openssh-server: %w", err)
	}

	s := &sshServer{folder: filepath.Join(folder, "ssh")}
	if err := os.MkdirAll(s.folder, 0o700); err != nil {
		return nil, err
	}

	for _, name := range []string{"host", "user"} {
		cmd := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(s.folder, name))
		if text, err := cmd.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("ssh-keygen: %w: %s", err, text)
		}
	}

	address, err := yardtest.FreeAddress(ctx)
	if err != nil {
		return nil, err
	}

	_, s.port, err = net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}

	config := fmt.Sprintf(`ListenAddress 127.0.0.1
Port %s
HostKey %s/host
AuthorizedKeysFile %s/user.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
Subsystem sftp internal-sftp
`, s.port, s.folder, s.folder)

	file := filepath.Join(s.folder, "sshd_config")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}

	// It insists on this folder, into which it locks processes that have not logged in yet.
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil { //nolint:gosec // as the package of the system makes it
		return nil, err
	}

	cmd := exec.CommandContext(context.WithoutCancel(ctx), sshd, "-D", "-e", "-f", file)

	s.process, err = yardtest.Start(cmd, filepath.Join(s.folder, "sshd.log"))
	if err != nil {
		return nil, err
	}

	for range 100 {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", net.JoinHostPort("127.0.0.1", s.port))
		if err == nil {
			return s, conn.Close()
		}

		time.Sleep(50 * time.Millisecond)
	}

	s.stop()

	return nil, errors.New("sshd has not started: " + yardtest.Tail(filepath.Join(s.folder, "sshd.log"), 5))
}

func (s *sshServer) stop() { _ = s.process.Kill() }

// path is a path as scp takes it.
func (s *sshServer) path(path string) string { return "127.0.0.1:" + path }

// copy copies a file with scp, and returns how long that took.
func (s *sshServer) copy(ctx context.Context, from, to string) (time.Duration, error) {
	cmd := exec.CommandContext(ctx, "scp", "-q", "-P", s.port, "-i", filepath.Join(s.folder, "user"),
		"-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "BatchMode=yes", from, to)
	begun := time.Now()

	if text, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("scp: %w: %s", err, text)
	}

	return time.Since(begun), nil
}
