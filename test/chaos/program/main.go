// Command program is what the jobs of the chaos tests run.
//
// It prints numbered lines and notes each of them, its start and its end in a file that all nodes share. It never talks
// to the yard. The chaos tests submit it and read what it noted.
package main

import (
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"trainyard/test/chaos/evidence"
)

func main() {
	dir := flag.String("dir", "", "folder that all runs share")
	name := flag.String("name", "", "name of the job")
	lines := flag.Int("lines", 0, "lines to print at least")
	every := flag.Duration("every", 0, "time between two lines")
	until := flag.String("until", "", "file whose coming is waited for, with further lines")
	flag.Parse()

	code, err := run(*dir, *name, *lines, *every, *until)
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "program of the chaos tests:", err)
		code = 90
	}

	os.Exit(code)
}

func run(dir, name string, lines int, every time.Duration, until string) (code int, err error) {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)

	// It works on without anybody who reads what it prints, as many programs do.
	signal.Ignore(syscall.SIGPIPE)

	host, err := address()
	if err != nil {
		return 0, err
	}

	id := os.Getenv("TRAINYARD_RUN")
	w, err := evidence.NewWriter(dir, name, id, host)
	if err != nil {
		return 0, err
	}

	if err := w.Note(evidence.Start, 0); err != nil {
		return 0, err
	}

	for n := 0; ; {
		if n >= lines && (until == "" || exists(until)) {
			return 0, w.Note(evidence.End, n)
		}

		// What is noted as printed was printed.
		if _, err := fmt.Println(evidence.Line(name, id, n)); err == nil {
			n++
		} else if !errors.Is(err, syscall.EPIPE) {
			return 0, err
		}

		if err := w.Note(evidence.Tick, n); err != nil {
			return 0, err
		}

		select {
		case <-stop:
			return 128 + int(syscall.SIGTERM), w.Note(evidence.Term, n)
		case <-time.After(every):
		}
	}
}

// address is that of the machine: the first that is not a loopback's.
func address() (string, error) {
	all, err := net.InterfaceAddrs()
	if err != nil {
		return "", fmt.Errorf("find the machine's address: %w", err)
	}

	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok && n.IP.To4() != nil && !n.IP.IsLoopback() {
			return n.IP.String(), nil
		}
	}

	return "", errors.New("the machine has no address")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
