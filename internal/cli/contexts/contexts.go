// Package contexts keeps the file with the yards that a person has logged in to.
//
// A context is a yard's address, the token for it and the CA that was pinned at
// login. The file holds secrets: it is written with mode 0600, whole or not at
// all, and nothing of it ever goes into a message but names and addresses. cli
// reads and writes it; the command that starts a yard on the own machine adds one.
package contexts

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/atomicfile"
	"trainyard/internal/fault"
)

const fileName = "config.yaml"

// Context is one yard that a person has logged in to.
type Context struct {
	Name   string `yaml:"name"`
	Server string `yaml:"server"` // https://host:port
	// Servers are all addresses of the yard, as its servers say, if there are several.
	Servers []string `yaml:"servers,omitempty"`
	User    string   `yaml:"user,omitempty"` // who the token stood for at login
	Token   string   `yaml:"token"`
	CA      string   `yaml:"ca"` // PEM of the pinned CA
}

// File is the whole file.
type File struct {
	Current  string    `yaml:"current,omitempty"`
	Contexts []Context `yaml:"contexts,omitempty"`

	dir string
}

// Load reads the file in dir. One that is not there is empty.
func Load(dir string) (*File, error) {
	f := &File{dir: dir}
	text, err := os.ReadFile(f.Path())
	if errors.Is(err, fs.ErrNotExist) {
		return f, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read logins: %w", err)
	}

	if err := yaml.NewDecoder(bytes.NewReader(text)).Decode(f); err != nil && len(bytes.TrimSpace(text)) > 0 {
		// The YAML package quotes what it cannot read, and that may be a secret.
		return nil, fault.New(fault.Invalid, "config_invalid", "%s is not a list of logins", f.Path()).
			WithRemedy("mend it, or remove it and log in again")
	}

	return f, nil
}

// Path returns where the file is.
func (f *File) Path() string { return filepath.Join(f.dir, fileName) }

// Exposed reports whether others than the owner may read the file.
func (f *File) Exposed() bool {
	info, err := os.Stat(f.Path())
	return err == nil && info.Mode().Perm()&0o077 != 0
}

// Get returns the context of this name; "" means the current one.
func (f *File) Get(name string) (Context, bool) {
	if name == "" {
		name = f.Current
	}

	for _, c := range f.Contexts {
		if c.Name == name {
			return c, true
		}
	}

	return Context{}, false
}

// ByServer returns the context for a server's address, the current one first.
func (f *File) ByServer(server string) (Context, bool) {
	if c, ok := f.Get(""); ok && c.Server == server {
		return c, true
	}

	for _, c := range f.Contexts {
		if c.Server == server {
			return c, true
		}
	}

	return Context{}, false
}

// Put adds or replaces a context and makes it the current one.
func (f *File) Put(c Context) {
	f.Remove(c.Name)
	f.Contexts = append(f.Contexts, c)
	slices.SortFunc(f.Contexts, func(a, b Context) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	f.Current = c.Name
}

// Remove takes a context out. If it was the current one, none is current then.
func (f *File) Remove(name string) {
	f.Contexts = slices.DeleteFunc(f.Contexts, func(c Context) bool { return c.Name == name })
	if f.Current == name {
		f.Current = ""
	}
}

// Save writes the file so that a crash leaves the old or the new one.
func (f *File) Save() error {
	text, err := yaml.Marshal(f)
	if err != nil {
		return fmt.Errorf("encode logins: %w", err)
	}
	if err := os.MkdirAll(f.dir, 0o700); err != nil {
		return fmt.Errorf("save logins: %w", err)
	}
	if err := atomicfile.Write(f.Path(), text); err != nil {
		return fmt.Errorf("save logins: %w", err)
	}

	return nil
}
