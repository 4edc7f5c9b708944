package yardtest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Person has logins of their own and types commands.
type Person struct {
	Binary string
	Home   string
	Vars   []string // of the environment
}

// NewPerson makes a home for a person below the folder of a yard.
func NewPerson(binary, folder, name string) (Person, error) {
	home := filepath.Join(folder, "people", name)
	if err := os.MkdirAll(home, 0o700); err != nil {
		return Person{}, fmt.Errorf("make a home for %s: %w", name, err)
	}

	return Person{Binary: binary, Home: home, Vars: []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + filepath.Join(home, "config"),
	}}, nil
}

// Command prepares a command as the person types it.
func (p Person) Command(ctx context.Context, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, p.Binary, args...)
	cmd.Env, cmd.Dir = p.Vars, p.Home

	return cmd
}

// Terminal opens a terminal: what a program writes to the second file is read from the first, as a person sees it.
// Output is not changed on its way.
func Terminal() (screen, program *os.File, err error) {
	screen, err = os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}

	program, err = otherEnd(screen)
	if err != nil {
		_ = screen.Close()

		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}

	return screen, program, nil
}

// otherEnd opens the end of a terminal that programs use.
func otherEnd(screen *os.File) (*os.File, error) {
	fd := int(screen.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		return nil, err
	}

	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		return nil, err
	}

	program, err := os.OpenFile("/dev/pts/"+strconv.Itoa(number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}

	settings, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
	if err == nil {
		settings.Oflag &^= unix.OPOST
		settings.Lflag &^= unix.ECHO
		err = unix.IoctlSetTermios(int(program.Fd()), unix.TCSETS, settings)
	}

	if err != nil {
		_ = program.Close()

		return nil, err
	}

	return program, nil
}
