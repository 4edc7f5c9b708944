package main

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"strings"
	"time"
)

// remote is a book to which the test writes: one line for each call, and one for its answer. The lock is held for as
// long as the connection is there, which the kernel ends with the program.
type remote struct {
	conn    net.Conn
	answers *bufio.Reader
}

func dial(address string) (*remote, error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()

	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}

	return &remote{conn: conn, answers: bufio.NewReader(conn)}, nil
}

// ask makes a call and reports whether the answer is yes.
func (r *remote) ask(call, text string) (bool, error) {
	if _, err := fmt.Fprintf(r.conn, "%s %s\n", call, text); err != nil {
		return false, err
	}

	answer, err := r.answers.ReadString('\n')
	if err != nil {
		return false, err
	}

	switch answer = strings.TrimSpace(answer); answer {
	case "yes", "no":
		return answer == "yes", nil
	default:
		return false, fmt.Errorf("%s %s: %s", call, text, answer)
	}
}

func (r *remote) lock(name string) (bool, error) { return r.ask("lock", name) }

func (r *remote) note(line string) error {
	_, err := r.ask("note", line)
	return err
}

func (r *remote) touch(path string) error {
	_, err := r.ask("touch", path)
	return err
}

func (r *remote) exists(path string) (bool, error) { return r.ask("exists", path) }
