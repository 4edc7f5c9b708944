// Command release builds the archives of a release: for each platform a tar.gz with the static
// binary, an SBOM beside it, and SHA256SUMS over all of them.
//
//	go run ./tools/release -version 0.1.0 -commit abc123 -epoch 1767225600 -out build/release
//
// The same sources, Go version and arguments give the same bytes, whatever the folder and the time:
// nothing of the machine gets into a binary, and archives have a fixed order, owner and date.
// `make release` calls it, `make release-check` calls it twice and compares.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// defaultPlatforms are those that releases are built for. The agent lives on Linux alone (pidfd, cgroups), and
// server, agent and command line are one binary, so there is none for darwin yet.
const defaultPlatforms = "linux/amd64,linux/arm64"

// release is what is to be built.
type release struct {
	Version   string
	Commit    string
	Time      time.Time // of the commit; the date of everything in the archives
	Platforms []platform
	Source    string   // folder of the module
	Package   string   // the command, such as ./cmd/trainyard
	Extra     []string // files beside the binary: licence, changelog
	Out       string
}

// platform is an operating system and an architecture in Go's words.
type platform struct{ OS, Arch string }

func (p platform) String() string { return p.OS + "/" + p.Arch }

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout, os.Stderr); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			os.Exit(2)
		}

		_, _ = fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	r, err := parse(args, stderr)
	if err != nil {
		return err
	}

	changelog, err := os.ReadFile(filepath.Join(r.Source, "CHANGELOG.md"))
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}

	if !hasSection(string(changelog), r.Version) {
		return fmt.Errorf("CHANGELOG.md has no section %q: rename Unreleased first", "## ["+r.Version+"]")
	}

	return r.build(ctx, stdout, stderr)
}

// versionPattern is semantic versioning without the leading v.
var versionPattern = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)

func parse(args []string, stderr io.Writer) (*release, error) {
	flags := flag.NewFlagSet("release", flag.ContinueOnError)
	flags.SetOutput(stderr)

	r := &release{Extra: []string{"LICENSE", "README.md", "CHANGELOG.md"}}
	flags.StringVar(&r.Version, "version", "", "version, as in 0.1.0")
	flags.StringVar(&r.Commit, "commit", "", "commit that is built")
	flags.StringVar(&r.Source, "source", ".", "folder of the module")
	flags.StringVar(&r.Package, "package", "./cmd/trainyard", "command to build")
	flags.StringVar(&r.Out, "out", "", "folder for the archives; it must be empty or absent")
	epoch := flags.Int64("epoch", 0, "date of the contents in Unix seconds: SOURCE_DATE_EPOCH")
	platforms := flags.String("platforms", defaultPlatforms, "platforms to build for, separated by commas")

	if err := flags.Parse(args); err != nil {
		return nil, err
	}

	switch {
	case !versionPattern.MatchString(r.Version):
		return nil, fmt.Errorf("-version must be a semantic version such as 0.1.0, got %q", r.Version)
	case r.Commit == "":
		return nil, errors.New("-commit must be given")
	case *epoch <= 0:
		return nil, errors.New("-epoch must be given: the time of the commit, in Unix seconds")
	case r.Out == "":
		return nil, errors.New("-out must be given")
	}

	r.Time = time.Unix(*epoch, 0).UTC()
	for text := range strings.SplitSeq(*platforms, ",") {
		system, arch, ok := strings.Cut(strings.TrimSpace(text), "/")
		if !ok || system == "" || arch == "" {
			return nil, fmt.Errorf("platform must be written as os/arch, got %q", text)
		}

		r.Platforms = append(r.Platforms, platform{system, arch})
	}

	return r, nil
}

// hasSection reports whether a changelog in keep-a-changelog form has a section for a version.
func hasSection(changelog, version string) bool {
	for line := range strings.Lines(changelog) {
		if strings.HasPrefix(line, "## ["+version+"]") {
			return true
		}
	}

	return false
}
