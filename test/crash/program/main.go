// Command program is what the jobs of the crash test run.
//
// It takes a lock that no other run of the same rank may hold at the same time, writes
// down that it began and how it ended in a file that all share, prints numbered
// lines, and does as its flags say. It never talks to the yard. The crash test
// submits it and reads what it wrote down. In a container, which does not have that
// file, it asks the test to write: see remote.go.
package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// The exit codes by which it says that something is wrong.
const (
	codeBroken = 90 // the test itself is broken
	codeAlone  = 95 // the other rank did not come
	codeFiles  = 96 // the working directory is not what was shipped
	codeTwice  = 97 // another run holds the lock
)

type program struct {
	dir, name, run, rank string
	epoch                int
	lines                int
	book                 book
	stop                 chan os.Signal
}

// book is what all runs share.
type book interface {
	lock(name string) (mine bool, err error) // for as long as the program lives
	note(line string) error                  // one line of the record, at once and whole
	touch(path string) error
	exists(path string) (bool, error)
}

func main() {
	p := &program{run: os.Getenv("TRAINYARD_RUN"), rank: os.Getenv("NODE_RANK"), stop: make(chan os.Signal, 1)}
	flag.StringVar(&p.dir, "dir", "", "folder that all runs share, or the address of who writes to it")
	flag.StringVar(&p.name, "name", "", "name of the job")
	lines := flag.Int("lines", 0, "lines to print")
	every := flag.Duration("every", 0, "time between two lines")
	code := flag.Int("exit", 0, "exit code")
	failing := flag.Int("failing", 0, "runs that fail before one ends with the exit code")
	until := flag.String("until", "", "file whose coming is waited for after the lines")
	deaf := flag.Bool("deaf", false, "do not end on SIGTERM")
	meet := flag.Bool("meet", false, "wait for the other rank")
	file := flag.String("file", "", "file of the working directory that must hold the name")
	flag.Parse()

	if *deaf {
		signal.Ignore(syscall.SIGTERM)
	} else {
		signal.Notify(p.stop, syscall.SIGTERM)
	}

	p.begin()

	if *file != "" {
		p.checkFile(*file)
	}

	if *meet {
		p.meet()
	}

	for range *lines {
		p.print()
		p.pause(*every)
	}

	for *until != "" && !p.exists(*until) {
		p.pause(10 * time.Millisecond)
	}

	if p.epoch <= *failing {
		*code = 7
	}

	p.end("end", *code)
}

// begin takes the lock and writes down that the run began.
func (p *program) begin() {
	var err error
	p.epoch, err = strconv.Atoi(os.Getenv("TRAINYARD_EPOCH"))
	p.must(err)
	p.book, err = openBook(p.dir)
	p.must(err)

	mine, err := p.book.lock(p.name + "-" + p.rank)
	p.must(err)

	if !mine {
		p.end("twice", codeTwice)
	}

	p.note("start")
}

// openBook opens what all runs share.
func openBook(dir string) (book, error) {
	if filepath.IsAbs(dir) {
		return openFolder(dir)
	}

	return dial(dir)
}

// note writes one line to the record.
func (p *program) note(what string, more ...any) {
	line := fmt.Sprintf("%s %s %s %s", what, p.name, p.run, p.rank)
	for _, m := range more {
		line += fmt.Sprintf(" %v", m)
	}

	p.must(p.book.note(line))
}

func (p *program) end(how string, code int) {
	p.note(how, p.lines, code)
	os.Exit(code)
}

// print prints the next line. What is written down as printed was printed.
func (p *program) print() {
	_, err := fmt.Fprintf(os.Stdout, "L%d\n", p.lines)
	p.must(err)
	p.lines++
}

// pause waits and ends the program if it is told to stop.
func (p *program) pause(d time.Duration) {
	select {
	case <-p.stop:
		p.print() // what is printed last must not be lost either
		p.end("term", 128+int(syscall.SIGTERM))
	case <-time.After(d):
	}
}

// meet waits until the other rank of the run is there.
func (p *program) meet() {
	here := func(rank string) string { return filepath.Join("meet", p.run+"-"+rank) }
	p.must(p.book.touch(here(p.rank)))

	other := "1"
	if p.rank == "1" {
		other = "0"
	}

	for begun := time.Now(); !p.exists(here(other)); p.pause(5 * time.Millisecond) {
		if time.Since(begun) > time.Minute {
			p.end("alone", codeAlone)
		}
	}
}

func (p *program) checkFile(name string) {
	text, err := os.ReadFile(name)
	if err != nil || string(text) != p.name {
		p.note("files", fmt.Sprintf("%q", fmt.Sprint(string(text), err)))
		p.end("end", codeFiles)
	}
}

func (p *program) must(err error) {
	if err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "program of the crash test:", err) // there is nobody else to tell
		os.Exit(codeBroken)
	}
}

func (p *program) exists(path string) bool {
	there, err := p.book.exists(path)
	p.must(err)

	return there
}
