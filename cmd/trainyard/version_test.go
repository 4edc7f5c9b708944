package main

import (
	"runtime"
	"runtime/debug"
	"testing"
)

func TestCommitIsFoundInTheBuild(t *testing.T) {
	t.Parallel()

	build := func(settings ...debug.BuildSetting) func() (*debug.BuildInfo, bool) {
		return func() (*debug.BuildInfo, bool) { return &debug.BuildInfo{Settings: settings}, true }
	}
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "abc"}

	tests := []struct {
		name string
		read func() (*debug.BuildInfo, bool)
		want string
	}{
		{"no information", func() (*debug.BuildInfo, bool) { return nil, false }, "unknown"},
		{"built outside a checkout", build(), "unknown"},
		{"built in a checkout", build(revision, debug.BuildSetting{Key: "vcs.modified", Value: "false"}), "abc"},
		{"built with changes", build(revision, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), "abc+"},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			if got := buildCommit(tt.read); got != tt.want {
				t.Errorf("commit = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestTheCommandsKnowTheirBuild(t *testing.T) {
	t.Parallel()

	env := systemEnv()
	if env.Version == "" || env.Commit == "" || env.GoVersion != runtime.Version() {
		t.Errorf("version %q, commit %q, Go %q: want all three", env.Version, env.Commit, env.GoVersion)
	}
}
