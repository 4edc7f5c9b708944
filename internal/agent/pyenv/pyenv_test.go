package pyenv

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"trainyard/internal/job"
)

// tree makes a working directory.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()

	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}

	return dir
}

func request(work string, p job.Python) *Request {
	return &Request{
		Python: p, Owner: "ada", UID: 7, Work: work, Files: "sha256:1",
		Env:   []string{"PATH=/bin", "PIP_INDEX_URL=http://a/", "SEED=1", "TOKEN=x"},
		Tools: Tools{UV: "/usr/bin/uv", Conda: "/opt/conda", Pythons: []string{"/no/python3"}},
	}
}

func key(t *testing.T, r *Request) string {
	t.Helper()
	k, err := r.Key()
	if err != nil {
		t.Fatal(err)
	}

	return k
}

// The key of an environment changes with whatever changes its content, and with nothing else.
func TestKey(t *testing.T) {
	t.Parallel()
	files := map[string]string{
		"r.txt": "alpha\n-c sub/c.txt\nbeta @ https://${TOKEN}@h/b\n", "sub/c.txt": "-r d.txt", "sub/d.txt": "gamma", "code.py": "1",
	}
	p := job.Python{Version: "3.11", Requirements: "r.txt"}
	base := key(t, request(tree(t, files), p))

	for name, tc := range map[string]struct {
		files  map[string]string
		change func(*Request)
		same   bool
	}{
		"the same":              {same: true},
		"code":                  {files: map[string]string{"code.py": "2"}, same: true},
		"digest of the files":   {change: func(r *Request) { r.Files = "sha256:2" }, same: true},
		"another variable":      {change: func(r *Request) { r.Env[2] = "SEED=2" }, same: true},
		"where it is":           {change: func(r *Request) { r.Tools.UV = "/opt/uv" }, same: true},
		"owner":                 {change: func(r *Request) { r.Owner = "bob" }},
		"uid":                   {change: func(r *Request) { r.UID = 8 }},
		"version":               {change: func(r *Request) { r.Version = "3.12" }},
		"requirements":          {files: map[string]string{"r.txt": "alpha==2\n-c sub/c.txt\nbeta @ https://${TOKEN}@h/b\n"}},
		"nested constraints":    {files: map[string]string{"sub/d.txt": "gamma==2"}},
		"index":                 {change: func(r *Request) { r.Env[1] = "PIP_INDEX_URL=http://b/" }},
		"a variable of a file":  {change: func(r *Request) { r.Env[3] = "TOKEN=y" }},
		"tool":                  {change: func(r *Request) { r.Tools.UV = "" }},
		"interpreter":           {change: func(r *Request) { r.Tools.Pythons = []string{"/usr/bin/other"} }},
		"settings of uv":        {files: map[string]string{"uv.toml": "index-url = 'x'"}},
		"a list, not a file":    {change: func(r *Request) { r.Python = job.Python{Version: "3.11", Packages: []string{"alpha"}} }},
		"an environment of uv":  {files: map[string]string{"pyproject.toml": ""}, change: func(r *Request) { r.Python = job.Python{UV: "pyproject.toml"} }},
		"an environment of yml": {files: map[string]string{"e.yml": ""}, change: func(r *Request) { r.Python = job.Python{Conda: "e.yml"} }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := map[string]string{}
			for _, m := range []map[string]string{files, tc.files} {
				maps.Copy(all, m)
			}

			r := request(tree(t, all), p)
			if tc.change != nil {
				tc.change(r)
			}

			if got := key(t, r); (got == base) != tc.same || !strings.HasPrefix(got, "py-") {
				t.Errorf("its key is %s, that of the first %s", got, base)
			}
		})
	}
}

// Packages that are made of files of the working directory are not those of other files.
func TestKeyOfLocalFiles(t *testing.T) {
	t.Parallel()

	for text, local := range map[string]bool{
		"alpha": false,
		"alpha[extra]==1.0 ; python_version < '3.9' --hash=sha256:0": false,
		"alpha @ https://host/alpha-1.whl":                           false,
		"--extra-index-url https://host/simple":                      false,
		"-r https://host/more.txt":                                   false,
		"git+https://host/alpha.git":                                 false,
		"-e git+https://host/alpha.git#egg=alpha":                    false,
		"--pre":                      false,
		"# ./code":                   false,
		"./code":                     true,
		"code/":                      true,
		".":                          true,
		"alpha-1.0-py3-none-any.whl": true,
		"alpha @ file:///code":       true,
		"--find-links wheels":        true,
		"-f wheels":                  true,
	} {
		work := tree(t, map[string]string{"r.txt": text + "\n"})
		one, two := request(work, job.Python{Requirements: "r.txt"}), request(work, job.Python{Requirements: "r.txt"})
		two.Files = "sha256:2"

		if got := key(t, one) != key(t, two); got != local {
			t.Errorf("%q depends on the working directory: %v, want %v", text, got, local)
		}
	}
}

func TestFilesThatAreRefused(t *testing.T) {
	t.Parallel()
	work := tree(t, map[string]string{
		"e.txt": "-e .", "up.txt": "-r ../x.txt", "lost.txt": "-r gone.txt", "dir/x": "", "uv.lock": "", "e.yml": "- pip:\n  - -e .\n",
	})

	if err := os.Symlink("/etc/passwd", filepath.Join(work, "link.txt")); err != nil {
		t.Fatal(err)
	}

	for want, p := range map[string]job.Python{
		`e.txt has "-e ."`:                         {Requirements: "e.txt"},
		"up.txt refers to ../x.txt, which is out":  {Requirements: "up.txt"},
		"gone.txt is not in the working directory": {Requirements: "lost.txt"},
		"cannot read link.txt":                     {Requirements: "link.txt"},
		"dir in the working directory is not a":    {Requirements: "dir"},
		"pyproject.toml is not in the working":     {UV: "uv.lock"},
		`e.yml has "-e ."`:                         {Conda: "e.yml"},
	} {
		_, err := request(work, p).Key()

		var own *Error
		if !errors.As(err, &own) || !strings.Contains(own.Error(), want) {
			t.Errorf("%+v: %v, want %q", p, err, want)
		}
	}
}

func TestFind(t *testing.T) {
	t.Parallel()
	a := tree(t, map[string]string{"uv": "", "python3.11": "", "python3.11-config": "", "conda": ""})
	b := tree(t, map[string]string{"uv": "", "python3.12": "", "micromamba": ""})
	if err := os.Symlink("python3.11", filepath.Join(a, "python3")); err != nil {
		t.Fatal(err)
	}

	all := func(file string) bool {
		_, err := os.Stat(file)
		return err == nil
	}

	got := Find(a+":relative:/no/such:"+b, all)
	if got.UV != filepath.Join(a, "uv") || got.Conda != filepath.Join(b, "micromamba") ||
		!slices.Equal(got.Pythons, []string{filepath.Join(a, "python3"), filepath.Join(b, "python3.12")}) {
		t.Errorf("found %+v", got)
	}

	if c := got.candidates("3.12.1"); !slices.Equal(c, []string{filepath.Join(b, "python3.12")}) {
		t.Errorf("candidates for 3.12.1: %v", c)
	}

	none := Find(a+":"+b, func(string) bool { return false })
	if none.UV != "" || none.Conda != "" || none.Pythons != nil {
		t.Errorf("found %+v that nobody may execute", none)
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()

	for name, tc := range map[string]struct{ output, want string }{
		"pip": {
			"Collecting x\nERROR: Could not find a version that satisfies the requirement nosuch==1 (from versions: none)\n" +
				"ERROR: No matching distribution found for nosuch==1\n",
			"package nosuch==1 was not found; last lines of output: Collecting x / ERROR: Could not find a version that " +
				"satisfies the requirement nosuch==1 (from versions: none) / ERROR: No matching distribution found for nosuch==1",
		},
		"pip, other versions": {
			"ERROR: Could not find a version that satisfies the requirement six==99 (from versions: 1, 2, 3, 4, 5, 6)\n",
			"no version fits six==99; there are …, 2, 3, 4, 5, 6; last lines",
		},
		"uv": {
			"error: No solution found when resolving dependencies\n  cause: Because nosuch was not found in the package registry and you " +
				"require nosuch==1, we can conclude that your requirements are unsatisfiable.\n",
			"package nosuch was not found; last lines",
		},
		"uv, other versions": {
			"error: No solution found when resolving dependencies\n  cause: Because there is no version of six==99 and you require six==99, " +
				"we can conclude that your requirements are unsatisfiable.\n",
			"no version fits six==99; last lines",
		},
		"uv, interpreter": {
			"error: No interpreter found for Python 3.99 in managed installations or search path\n\nhint: x\n" +
				"trainyard: versions of Python here: 3.11.2 3.12.1 \n",
			"Python 3.99 is not available here, and uv could not fetch it; there are: 3.11.2, 3.12.1; last lines of output: error: " +
				"No interpreter found for Python 3.99 in managed installations or search path / hint: x",
		},
		"venv": {
			"trainyard: Python 3.99 is not available here; there are: 3.11.2\n",
			"Python 3.99 is not available here; there are: 3.11.2",
		},
		"conda": {
			"PackagesNotFoundError: The following packages are not available from current channels:\n\n  - nosuch\n\nCurrent channels:\n\n  - https://x/y\n",
			"package nosuch was not found; last lines",
		},
		"micromamba": {
			"error libmamba\n    └─ nosuch =* * does not exist (perhaps a typo or a missing channel).\n",
			"package nosuch was not found; last lines",
		},
		"something else": {"a\nb\n\nc\nd\n", "last lines of output: b / c / d"},
		"nothing":        {"", ""},
	} {
		if got := Explain(tc.output); !strings.HasPrefix(got, tc.want) || tc.want == "" && got != "" {
			t.Errorf("%s: %q\nwant %q", name, got, tc.want)
		}
	}
}

func TestProgress(t *testing.T) {
	t.Parallel()

	for _, tc := range []struct {
		output    string
		installed int
		want      string
	}{
		{"", 0, ""},
		{"Collecting numpy\n  Downloading numpy-2.whl (16 MB)\n", 0, "Downloading numpy-2.whl (16 MB)"},
		{"Collecting a\nInstalling collected packages: a, b, c\n", 2, "installing 2 of 3 packages"},
		{"Resolved 12 packages in 1s\nPrepared 12 packages in 2s\n", 3, "installing 3 of 12 packages"},
		{"Resolved 12 packages in 1s\nDownloading torch (700MiB)\n", 0, "Downloading torch (700MiB)"},
		{"Resolved 2 packages in 1s\n", 5, "installing 2 of 2 packages"},
	} {
		if got := Progress(tc.output, tc.installed); got != tc.want {
			t.Errorf("%q with %d: %q, want %q", tc.output, tc.installed, got, tc.want)
		}
	}
}

func TestEnviron(t *testing.T) {
	t.Parallel()
	r := request("", job.Python{})
	got := r.Environ([]string{"A=b", "PATH=/bin", "PYTHONHOME=/x", "VIRTUAL_ENV=/other", "CONDA_PREFIX=/base"}, "/d")
	if want := []string{"A=b", "PATH=/d/env/bin:/bin", "VIRTUAL_ENV=/d/env"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}

	r.Conda = "e.yml"
	if got := r.Environ(nil, "/d"); !slices.Equal(got, []string{"PATH=/d/env/bin", "CONDA_PREFIX=/d/env"}) {
		t.Errorf("%v", got)
	}
}

// What a job file says is never executed: a package may have any name.
func TestScriptQuotes(t *testing.T) {
	t.Parallel()
	r := request("", job.Python{Packages: []string{"a'; touch /x; '", "$(id)"}})

	text, err := r.Script("/d")
	if err != nil || !strings.Contains(text, `printf '%s\n' 'a'\''; touch /x; '\''' '$(id)'; }`) {
		t.Errorf("%v: %s", err, text)
	}
}
