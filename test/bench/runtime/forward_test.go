package runtime_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"time"

	"trainyard/internal/id"
	"trainyard/internal/quantile"
)

// forwarded is how much goes through a port in each direction.
const forwarded = 2 << 30

// measureForward measures a forwarded port: how much goes through it, how long a byte takes there and back, and how
// long a new connection takes until its first byte has come back. The same port is measured without Trainyard.
func measureForward(ctx context.Context, b *bench) error {
	j, port, err := b.running(ctx)
	if err != nil {
		return err
	}

	local, stop, err := b.forward(ctx, j, port)
	if err != nil {
		return err
	}

	defer stop()

	direct := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	size := b.size(forwarded)

	for _, m := range []struct {
		key, at string
		what    byte
	}{
		{"direct_mb_s", direct, sendBytes},
		{"direct_up_mb_s", direct, takeBytes},
		{"forward_mb_s", local, sendBytes},
		{"forward_up_mb_s", local, takeBytes},
	} {
		took, err := transfer(ctx, m.at, m.what, size)
		if err != nil {
			return fmt.Errorf("%s: %w", m.key, err)
		}

		b.figures[m.key] = float64(size) / 1e6 / took.Seconds()
	}

	rounds := 2000
	if b.quick {
		rounds = 100
	}

	echoes, err := echo(ctx, local, rounds)
	if err != nil {
		return err
	}

	b.figures["forward_rtt_ms_p50"] = quantile.NearestRank(echoes, 0.5)
	b.figures["forward_rtt_ms_p99"] = quantile.NearestRank(echoes, 0.99)

	var first []float64
	for range rounds / 20 {
		one, err := echo(ctx, local, 0)
		if err != nil {
			return err
		}

		first = append(first, one...)
	}

	slices.Sort(first)
	b.figures["forward_connect_ms_p50"] = quantile.NearestRank(first, 0.5)

	return b.end(ctx, j)
}

// forward starts the command that forwards a port, and returns the address on this machine.
func (b *bench) forward(ctx context.Context, j id.Job, port int) (local string, stop func(), err error) {
	ctx, cancel := context.WithCancel(ctx)
	cmd := b.person.Command(ctx, "forward", string(j), "0:"+strconv.Itoa(port))

	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		cancel()
		return "", nil, err
	}

	stop = func() {
		cancel()
		_ = cmd.Wait() // it was killed
	}

	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil {
		_, err = fmt.Sscanf(line, "forwarding %s", &local)
	}

	if err != nil {
		stop()
		return "", nil, fmt.Errorf("trainyard forward: %w", err)
	}

	return local, stop, nil
}

// transfer sends so many bytes from the server or to it, and returns how long that took.
func transfer(ctx context.Context, at string, what byte, size int64) (time.Duration, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return 0, err
	}

	defer func() { _ = conn.Close() }()

	begun := time.Now()

	err = ask(conn, what, size)
	switch {
	case err != nil:
	case what == sendBytes:
		err = take(conn, size)
	default:
		err = send(conn, size)
		if err == nil {
			err = take(conn, 1)
		}
	}

	return time.Since(begun), err
}

// echo sends a byte there and back so many times over one connection, and returns how long each took in milliseconds,
// sorted. For none it is how long the connection took, with its first byte.
func echo(ctx context.Context, at string, rounds int) ([]float64, error) {
	begun := time.Now()

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}

	defer func() { _ = conn.Close() }()

	if err := ask(conn, echoBytes, 0); err != nil {
		return nil, err
	}

	one := make([]byte, 1)
	var took []float64

	for i := range rounds + 1 {
		if i > 0 {
			begun = time.Now()
		}

		if _, err := conn.Write(one); err != nil {
			return nil, err
		}

		if _, err := io.ReadFull(conn, one); err != nil {
			return nil, err
		}

		if i > 0 || rounds == 0 { // the first byte waits for the connection
			took = append(took, float64(time.Since(begun).Microseconds())/1000)
		}
	}

	slices.Sort(took)

	return took, nil
}
