package workdir

import (
	"context"
	"io"
)

type readFunc func([]byte) (int, error)

func (f readFunc) Read(p []byte) (int, error) { return f(p) }

// cancellable returns a reader that fails once ctx has ended, so that a large
// file does not keep a cancelled scan or copy going.
func cancellable(ctx context.Context, r io.Reader) io.Reader {
	return readFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}

		return r.Read(p)
	})
}
