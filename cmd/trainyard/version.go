package main

import (
	"runtime"
	"runtime/debug"

	"trainyard/internal/cli"
)

// Set by the linker: make build and make release pass -X main.version and -X main.commit.
var (
	version = "dev"
	commit  = ""
)

// systemEnv is the real machine for the commands, with what is known of this build.
func systemEnv() cli.Env {
	env := cli.SystemEnv(version)
	env.Commit = buildCommit(debug.ReadBuildInfo)
	env.GoVersion = runtime.Version()

	return env
}

// buildCommit is the commit that this program was built from: what the linker was told, else what the go command
// recorded, else "unknown". A "+" says that the sources had changes.
func buildCommit(read func() (*debug.BuildInfo, bool)) string {
	if commit != "" {
		return commit
	}

	info, ok := read()
	if !ok {
		return "unknown"
	}

	revision, modified := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			revision = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			modified = "+"
		}
	}

	if revision == "" {
		return "unknown"
	}

	return revision + modified
}
