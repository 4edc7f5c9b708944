package job_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/internal/id"
	"trainyard/internal/job"
)

// hostile are values that would be executed, or end the text around them, if they became a part of a script.
func hostile(marker string) []string {
	return []string{
		"plain", "two words", "", " leading", "*", "~", "-n", "a=b", "#comment", `"`, `'`, `\`, "`touch " + marker + "`",
		"$(touch " + marker + ")", "; touch " + marker, "\ntouch " + marker + "\n", "&& touch " + marker, "| touch " + marker,
		`"; touch ` + marker + `; "`, `'; touch ` + marker + `; '`, `"$(touch ` + marker + `)"`, `'"$(touch ` + marker + `)"'`,
		"${HOME}", "$HOME", "EOF\ntouch " + marker + "\n", "{{v}}", "}}", "a\tb", "ü", "!!", "x\\", `\"; touch ` + marker,
		`\'; touch ` + marker, ">" + marker, "<(touch " + marker + ")", "${IFS}touch${IFS}" + marker, "$'\\ntouch " + marker + "'",
	}
}

// contexts are ways in which a script may use a reference. Each prints the value alone.
func contexts() map[string]string {
	return map[string]string{
		"a word":                       `printf '%s' {{v}}`,
		"part of a word":               `printf '%s' {{v}}x | sed '$ s/x$//'`,
		"double quotes":                `printf '%s' "{{v}}"`,
		"single quotes":                `printf '%s' '{{v}}'`,
		"an assignment":                `x={{v}}; printf '%s' "$x"`,
		"a quoted assignment":          `x="{{v}}"; printf '%s' "$x"`,
		"a command substitution":       `printf '%s' "$(printf '%s.' {{v}})" | sed '$ s/\.$//'`,
		"quotes in a substitution":     `printf '%s' "$(printf '%s.' "{{v}}")" | sed '$ s/\.$//'`,
		"backquotes":                   "printf '%s' \"`printf '%s.' {{v}}`\" | sed '$ s/\\.$//'",
		"a default":                    `printf '%s' "${nothing:-{{v}}}"`,
		"after a comment with a quote": "# don't\nprintf '%s' {{v}}",
		"after escaped quotes":         `true \" \' ; printf '%s' {{v}}`,
		"after quotes in quotes":       `true "it's" 'say "hi"'; printf '%s' {{v}}`,
		"a here-document":              "cat <<EOF | sed '$ s/x$//' | head -c -1\n{{v}}x\nEOF",
		"after a quoted here-document": "cat > /dev/null <<'EOF'\nit's \"$(\nEOF\nprintf '%s' {{v}}",
		"a here-string":                `cat <<< {{v}} | head -c -1`,
		"a function":                   `f() { printf '%s' "$1"; }; f {{v}}`,
		"spaces in the braces":         `printf '%s' {{ v }}`,
	}
}

func TestValuesNeverBecomePartsOfAScript(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	marker := filepath.Join(dir, "executed")

	for name, script := range contexts() {
		for _, value := range hostile(marker) {
			j := &job.Job{ID: "j1", Spec: &job.Spec{Run: script, Params: map[string]any{"v": value}}}

			out, err := runScript(t, dir, j)
			if _, found := os.Stat(marker); found == nil {
				t.Fatalf("%s: the value %q was executed", name, value)
			}
			if err != nil || out != value {
				t.Errorf("%s: the value %q arrived as %q, %v", name, value, out, err)
			}
		}
	}
}

// runScript executes the commands of a job as its node does.
func runScript(t *testing.T, dir string, j *job.Job) (string, error) {
	t.Helper()

	cmd := exec.CommandContext(t.Context(), "bash", "-e", "-c", j.Spec.Script())
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + os.Getenv("PATH"), "HOME=/home/somebody"}
	for name, value := range j.LaunchEnv() {
		cmd.Env = append(cmd.Env, name+"="+value)
	}

	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()

	return out.String(), err
}

func TestElementsFindTheirPlaceInTheArray(t *testing.T) {
	t.Parallel()

	spec := &job.Spec{
		Run:    `printf '%s|' {{array.id}} {{array.index}} {{array.size}} {{array.value}} "$TRAINYARD_ARRAY_VALUE" {{lr}} "$NAME"`,
		Array:  &job.Array{Values: []string{"0.1", "a b"}},
		Params: map[string]any{"lr": "{{array.value}}", "steps": 100.0},
		Env:    map[string]string{"NAME": "run-{{array.index}}-{{steps}}"},
	}

	for index, want := range []string{"a7|0|2|0.1|0.1|0.1|run-0-100|", "a7|1|2|a b|a b|a b|run-1-100|"} {
		j := &job.Job{ID: id.NewJob(uint64(7 + index)), Array: "a7", Index: index, Spec: spec}
		if out, err := runScript(t, t.TempDir(), j); err != nil || out != want {
			t.Errorf("element %d printed %q, %v; want %q", index, out, err, want)
		}
	}

	first := (&job.Job{ID: "j7", Array: "a7", Spec: spec}).Resolved()
	if first.Params["lr"] != 0.1 || first.Env["NAME"] != "run-0-100" || !strings.Contains(first.Run, "a7 0 2 0.1") {
		t.Errorf("the first element is shown as %v, %v, %s", first.Params, first.Env, first.Run)
	}
}

func TestBracesThatAreMeantStay(t *testing.T) {
	t.Parallel()

	spec := &job.Spec{
		Run:    `printf '%s|' '\{{v}}' {{v}} '{{.Names}}' '{{ v + 1 }}' '{{' '}}'`,
		Params: map[string]any{"v": "x"},
		Env:    map[string]string{"A": `\{{v}}`},
	}

	j := &job.Job{ID: "j1", Spec: spec}
	if out, err := runScript(t, t.TempDir(), j); err != nil || out != "{{v}}|x|{{.Names}}|{{ v + 1 }}|{{|}}|" {
		t.Errorf("printed %q, %v", out, err)
	}
	if env := j.LaunchEnv(); env["A"] != "{{v}}" {
		t.Errorf("env is %v", env)
	}
}

func TestParametersOfNoProgramAreNotPassed(t *testing.T) {
	t.Parallel()

	j := &job.Job{ID: "j1", Spec: &job.Spec{Run: "true", Params: map[string]any{
		"lr": 0.1, "steps": 1e6, "tiny": 1e-7, "flag": true, "list": []any{1.0}, "odd-name": 1.0, "long": strings.Repeat("x", 5000),
		"nothing": nil,
	}}}

	want := map[string]string{
		"TRAINYARD_PARAM_lr": "0.1", "TRAINYARD_PARAM_steps": "1000000", "TRAINYARD_PARAM_tiny": "1e-07",
		"TRAINYARD_PARAM_flag": "true",
	}

	got := j.LaunchEnv()
	for name, value := range want {
		if got[name] != value {
			t.Errorf("%s is %q, want %q", name, got[name], value)
		}
	}
	if len(got) != len(want) {
		t.Errorf("passed %v", got)
	}
}
