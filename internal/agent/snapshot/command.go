package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"
)

// Command runs a program to its end and returns what it wrote. A process that reaps all its children by itself
// needs one of its own: package os/exec would miss the end of a child.
type Command func(ctx context.Context, path string, args ...string) (stdout, stderr []byte, err error)

// Execute is the Command of other processes.
func Execute(ctx context.Context, path string, args ...string) (stdout, stderr []byte, err error) {
	var out, errs bytes.Buffer

	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir = "/" // python also looks for modules in its working directory
	cmd.Stdout, cmd.Stderr = &out, &errs
	cmd.WaitDelay = time.Second
	err = cmd.Run()

	return out.Bytes(), errs.Bytes(), err
}

// output runs a program and returns what it wrote to its standard output. The error has its last word.
func (c Command) output(ctx context.Context, path string, args ...string) ([]byte, error) {
	if c == nil {
		c = Execute
	}

	found, err := exec.LookPath(path)
	if err != nil {
		return nil, err
	}

	out, errs, err := c(ctx, found, args...)
	if err != nil && len(bytes.TrimSpace(errs)) > 0 {
		lines := strings.Split(strings.TrimSpace(string(errs)), "\n")
		err = fmt.Errorf("%w: %s", err, lines[len(lines)-1])
	}

	return out, errors.Join(err, ctx.Err())
}
