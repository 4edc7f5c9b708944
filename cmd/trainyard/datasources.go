package main

import (
	"fmt"
	"path/filepath"
	"strings"
)

// dataRootsSetting says what datasets may read from the file system of a node.
var dataRootsSetting = setting{
	"data-roots",
	"",
	"directories below which datasets may be read from the file system, separated by commas (default: none, so that " +
		"datasets come from http and https sources alone)",
	func(c *config, v string) error {
		if err := list(func(c *config) *[]string { return &c.dataRoots })(c, v); err != nil {
			return err
		}

		for _, dir := range c.dataRoots {
			if !filepath.IsAbs(dir) {
				return fmt.Errorf("must be absolute paths, got %q", dir)
			}
		}

		return nil
	},
}

// dataHostsSetting says which hosts datasets may be fetched from although their addresses are those of the node itself.
var dataHostsSetting = setting{
	"data-hosts",
	"",
	"hosts, or hosts with a port, that datasets may be fetched from although they are at a loopback, link-local or " +
		"metadata address, separated by commas",
	list(func(c *config) *[]string { return &c.dataHosts }),
}

// list reads words that are separated by commas.
func list(target func(c *config) *[]string) func(*config, string) error {
	return func(c *config, v string) error {
		*target(c) = nil

		for word := range strings.SplitSeq(v, ",") {
			word = strings.TrimSpace(word)
			if word != "" {
				*target(c) = append(*target(c), word)
			}
		}

		return nil
	}
}
