package yardtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"trainyard/internal/auth"
	"trainyard/internal/cloud/process"
)

// Cloud is a cloud whose machines are processes on this machine: what a yard that may
// provision is set up with. Fill in the exported fields and call Flags.
type Cloud struct {
	Folder    string // everything lies below it; machines are found and ended by it
	Provision string // the terms, as the file of clouds has them: {idle: 1s}
	Boot      string // from the order until a machine's agent is started
	Offers    string // the types, as lines of a price file
	DataRoots string // below which machines read datasets; none if left out
	Notice    string // that spot machines get before they are reclaimed; none if left out
}

// Provider is the name of the one provider of a Cloud.
const Provider = "lab"

// Flags writes the files that a server reads and returns its flags.
func (c *Cloud) Flags() ([]string, error) {
	terms := fmt.Sprintf(
		"yard: %s\nprovision: %s\nproviders:\n"+
			"  - {name: %s, kind: process, dir: machines, boot: %s, notice: %s, data_roots: [%s], offers: offers.yaml}\n",
		c.Yard(),
		c.Provision,
		Provider,
		c.Boot,
		cmp.Or(c.Notice, "0s"),
		c.DataRoots,
	)

	prices := fmt.Sprintf(
		"providers:\n  - provider: %s\n    boot: %s\n    types:\n      - %s\n",
		Provider,
		c.Boot,
		strings.Join(strings.Split(strings.TrimSpace(c.Offers), "\n"), "\n      - "),
	)

	file := filepath.Join(c.Folder, "clouds.yaml")
	if err := errors.Join(
		os.WriteFile(file, []byte(terms), 0o600),
		os.WriteFile(filepath.Join(c.Folder, "offers.yaml"), []byte(prices), 0o600),
	); err != nil {
		return nil, fmt.Errorf("write what can be provisioned: %w", err)
	}

	return []string{"--clouds", file}, nil
}

// Yard is the name under which the server provisions.
func (c *Cloud) Yard() string { return "yard-of-a-test" }

// Dir is the folder of the cloud itself.
func (c *Cloud) Dir() string { return filepath.Join(c.Folder, "machines") }

// Machines returns the log of the cloud itself: every machine's start and end.
func (c *Cloud) Machines() ([]process.Entry, error) { return process.Log(c.Dir()) }

// Trust fetches the server's CA, so that Client works without LogIn.
func (y *Yard) Trust(ctx context.Context) error {
	token, err := auth.Parse(y.bootstrap)
	if err != nil {
		return err
	}

	y.ca, _, err = auth.FetchCA(ctx, y.Address, token.CAHash)

	return err
}
