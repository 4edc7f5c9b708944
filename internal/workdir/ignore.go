package workdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"trainyard/internal/glob"
)

const (
	ownIgnoreName = ".trainyardignore"
	gitIgnoreName = ".gitignore"

	maxIgnoreFile = 1 << 20
)

// confidential are the files that usually hold keys, tokens or passwords. What is uploaded is kept on the server and
// copied to nodes, so they are left out unless somebody wants them there.
const confidential = `
.env
.env.*
!.env.example
!.env.sample
!.env.template
*.pem
*.key
*.p12
*.pfx
*.kdbx
id_rsa
id_dsa
id_ecdsa
id_ed25519
*.token
.netrc
.pgpass
.pypirc
.npmrc
.git-credentials
.aws/
.ssh/
.gnupg/
.kube/
.azure/
**/.docker/config.json
**/.config/gcloud/
**/.config/trainyard/
**/huggingface/token
**/.huggingface/token
`

// ignoreRules are the rules of both kinds of ignore files. What .trainyardignore says of a path counts; otherwise what
// .gitignore does. So it adds to it, and can take back what it leaves out.
type ignoreRules struct{ own, git *ignoreList }

// within returns the rules that hold in dir, which is at real.
func (r ignoreRules) within(dir, real string) (ignoreRules, error) {
	own, err := r.own.within(dir, filepath.Join(real, ownIgnoreName))
	if err != nil {
		return r, fmt.Errorf("%s: %w", ownIgnoreName, err)
	}

	git, err := r.git.within(dir, filepath.Join(real, gitIgnoreName))
	if err != nil {
		return r, fmt.Errorf("%s: %w", gitIgnoreName, err)
	}

	return ignoreRules{own, git}, nil
}

// ask reports whether the rules say something of a path, and whether they leave it out.
func (r ignoreRules) ask(name string, isDir bool) (decides, ignores bool) {
	for _, list := range []*ignoreList{r.own, r.git} {
		if list.decides(name, isDir) {
			return true, list.ignores(name, isDir)
		}
	}

	return false, false
}

// ignoreList is the rules of one folder's ignore file, on top of those of the
// folders above it. A nil list ignores nothing.
type ignoreList struct {
	above *ignoreList
	dir   string // that the file lies in, "" for the root
	rules []ignoreRule
}

// ignoreRule is one line of an ignore file.
type ignoreRule struct {
	keep     bool     // the line began with "!"
	dirOnly  bool     // the line ended with "/"
	anchored bool     // the pattern holds from the file's folder on, not at any depth
	parts    []string // the pattern, split at slashes
}

// within returns the rules that hold in dir, whose ignore file is at real, if
// there is one.
func (l *ignoreList) within(dir, real string) (*ignoreList, error) {
	info, err := os.Stat(real)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return l, nil
	}
	if info.Size() > maxIgnoreFile {
		return nil, errors.New("ignore file is too large")
	}

	text, err := os.ReadFile(real)
	if err != nil {
		return nil, err
	}

	return &ignoreList{above: l, dir: dir, rules: parseIgnore(string(text))}, nil
}

// ignores reports whether the rules leave out this path. The last line that
// matches decides, and a folder's own file stands above those of the folders
// around it. What lies in an ignored folder is never asked about.
func (l *ignoreList) ignores(name string, isDir bool) bool {
	for ; l != nil; l = l.above {
		inside := name
		if l.dir != "" {
			inside = strings.TrimPrefix(name, l.dir+"/")
		}

		parts := strings.Split(inside, "/")
		for i := len(l.rules) - 1; i >= 0; i-- {
			if l.rules[i].matches(parts, isDir) {
				return !l.rules[i].keep
			}
		}
	}

	return false
}

// decides reports whether any rule says something of this path, to leave it out or to keep it.
func (l *ignoreList) decides(name string, isDir bool) bool {
	for ; l != nil; l = l.above {
		inside := name
		if l.dir != "" {
			inside = strings.TrimPrefix(name, l.dir+"/")
		}

		parts := strings.Split(inside, "/")
		if slices.ContainsFunc(l.rules, func(r ignoreRule) bool { return r.matches(parts, isDir) }) {
			return true
		}
	}

	return false
}

// parseIgnore reads an ignore file. Like Git it has no errors: a line that
// makes no sense matches nothing.
func parseIgnore(text string) []ignoreRule {
	var rules []ignoreRule
	for line := range strings.SplitSeq(strings.TrimPrefix(text, "\ufeff"), "\n") {
		if rule, ok := parseRule(strings.TrimSuffix(line, "\r")); ok {
			rules = append(rules, rule)
		}
	}

	return rules
}

func parseRule(line string) (ignoreRule, bool) {
	line = trimTrailingSpace(line)
	if line == "" || line[0] == '#' {
		return ignoreRule{}, false
	}

	var r ignoreRule
	if line[0] == '!' {
		r.keep, line = true, line[1:]
	}

	if rest, ok := strings.CutSuffix(line, "/"); ok {
		r.dirOnly, line = true, rest
	}

	if line == "" {
		return ignoreRule{}, false
	}

	r.anchored = strings.Contains(line, "/")
	r.parts = strings.Split(strings.TrimPrefix(line, "/"), "/")

	return r, true
}

// trimTrailingSpace cuts spaces that no backslash protects.
func trimTrailingSpace(s string) string {
	for strings.HasSuffix(s, " ") {
		cut := s[:len(s)-1]
		slashes := len(cut) - len(strings.TrimRight(cut, `\`))
		if slashes%2 == 1 {
			return s
		}

		s = cut
	}

	return s
}

func (r ignoreRule) matches(name []string, isDir bool) bool {
	if r.dirOnly && !isDir {
		return false
	}
	if !r.anchored {
		return glob.Part(r.parts[0], name[len(name)-1])
	}

	return glob.Parts(r.parts, name)
}
