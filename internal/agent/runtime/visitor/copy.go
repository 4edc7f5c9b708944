package visitor

import (
	"fmt"
	"io"
	"os"

	"trainyard/internal/tarstream"
)

// CopyCommand is the hidden subcommand that copies files, with Get or Put and a path below the working directory.
const (
	CopyCommand = "copy-files"
	Get         = "get"
	Put         = "put"
)

// CopyFiles copies files between the working directory and a tar stream, and returns the exit status of the process. It
// runs inside the walls of the program, as its user, and below the working directory alone: a link that leads out of it
// is not followed.
func CopyFiles(how, name string, in io.Reader, out, stderr io.Writer) int {
	root, err := os.OpenRoot(".")
	if err == nil {
		defer func() { _ = root.Close() }()

		if how == Put {
			err = tarstream.Read(root, name, in, func(link string) {
				_, _ = fmt.Fprintf(stderr, "skipped %s: the link leads out of what is copied\n", link)
			})
		} else {
			err = tarstream.Write(root, name, out)
		}
	}

	if err != nil {
		_, _ = fmt.Fprintln(stderr, err)
		return 1
	}

	return 0
}
