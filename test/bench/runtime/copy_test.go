package runtime_test

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

	took, err := b.there(size, func(from, to string) (time.Duration, error) { return b.types(ctx, "cp", from, to) },
		file, string(j)+":copy")
	if err != nil {
		return err
	}

	b.figures["cp_mb_s"] = float64(2*size) / 1e6 / took.Seconds()

	if err := b.end(ctx, j); err != nil {
		return err
	}

	sshd, err := findSSH()
	if err != nil {
		return nil // there is nothing to compare with, which the table says
	}

	server, err := startSSH(ctx, sshd, b.folder)
	if err != nil {
		return err
	}

	defer server.stop()

	beside, err := b.there(size, func(from, to string) (time.Duration, error) { return server.copy(ctx, from, to) },
		file, "127.0.0.1:"+filepath.Join(b.folder, "copy"))
	if err != nil {
		return err
	}

	b.figures["scp_mb_s"] = float64(2*size) / 1e6 / beside.Seconds()
	b.figures["cp_vs_scp_pct"] = 100 * beside.Seconds() / took.Seconds()

	return nil
}

// there copies a file somewhere and back, and returns how long that took.
func (b *bench) there(
	size int64, copyFile func(from, to string) (time.Duration, error), file, there string,
) (time.Duration, error) {
	back := filepath.Join(b.folder, "back")
	defer func() { _ = os.Remove(back) }()

	to, err := copyFile(file, there)
	if err != nil {
		return 0, err
	}

	from, err := copyFile(there, back)
	if err != nil {
		return 0, err
	}

	info, err := os.Stat(back)
	if err == nil && info.Size() != size {
		err = fmt.Errorf("%d bytes came back of %d", info.Size(), size)
	}

	return to + from, err
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

// findSSH returns the path of the SSH server, which need not be on the path of a user.
func findSSH() (string, error) {
	if sshd, err := exec.LookPath("sshd"); err == nil {
		return sshd, nil
	}

	return exec.LookPath("/usr/sbin/sshd")
}

// startSSH starts an SSH server that lets this user in by a key.
func startSSH(ctx context.Context, sshd, folder string) (*sshServer, error) {
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
	if err := os.MkdirAll("/run/sshd", 0o755); err != nil {
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
