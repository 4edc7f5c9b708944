package e2e_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"trainyard/test/yardtest"
)

func TestAFlagWinsOverAVariableAndAVariableOverTheFile(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		variable  string
		flags     []string
		wantsJSON bool
	}{
		{"the file alone", "", nil, true},
		{"a variable over the file", "text", nil, false},
		{"a flag over both", "text", []string{"--log-format", "json"}, true},
	}

	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			folder := newFolder(t)

			address, err := yardtest.FreeAddress(t.Context())
			if err != nil {
				t.Fatal(err)
			}

			config := filepath.Join(folder, "config.yaml")

			text := "log_format: json\nlisten: " + address + "\ndata: " + filepath.Join(folder, "data") + "\nreport_every: 1s\n"
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}

			cmd := exec.CommandContext(t.Context(), binary, append([]string{"server", "--config", config}, tt.flags...)...)
			cmd.Env = os.Environ()
			if tt.variable != "" {
				cmd.Env = append(cmd.Env, "TRAINYARD_LOG_FORMAT="+tt.variable)
			}

			log := filepath.Join(folder, "log")
			server, err := yardtest.Start(cmd, log)
			if err != nil {
				t.Fatal(err)
			}

			newPerson(t, folder, "me").await(t, "the server works", func() bool {
				return strings.Contains(yardtest.Tail(log, 100), "server works")
			})

			if isJSON := strings.Contains(yardtest.Tail(log, 100), `"msg":"server works"`); isJSON != tt.wantsJSON {
				t.Errorf("the log is JSON: %t, want %t", isJSON, tt.wantsJSON)
			}

			if code, err := server.Stop(patience); err != nil || code != 0 {
				t.Errorf("the server ended with code %d (%v)", code, err)
			}
		})
	}
}

func TestAllMistakesOfAConfigurationAreToldAtOnce(t *testing.T) {
	t.Parallel()
	folder := newFolder(t)
	p := newPerson(t, folder, "me")

	config := filepath.Join(folder, "config.yaml")
	if err := os.WriteFile(config, []byte("report_every: soon\nmax_jobs: many\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	p.Vars = append(p.Vars, "TRAINYARD_RATE=fast")
	r := p.exits(
		t,
		104,
		"server",
		"--config",
		config,
		"--data",
		filepath.Join(folder, "data"),
		"--lost-after",
		"1s",
		"--log-level",
		"loud",
	)

	for _, want := range []string{"report_every in " + config, "max_jobs in " + config, "TRAINYARD_RATE",
		"--log-level", "lost-after", "longer than suspect-after"} {
		if !strings.Contains(r.err, want) {
			t.Errorf("the errors do not name %q: %s", want, r)
		}
	}

	if err := os.WriteFile(config, []byte("report_evry: 1s\nlisten_on: x\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	r = p.exits(t, 104, "server", "--config", config, "--data", filepath.Join(folder, "data"))
	if !strings.Contains(r.err, "report_evry") || !strings.Contains(r.err, "listen_on") {
		t.Errorf("the errors do not name both keys: %s", r)
	}

	if _, err := os.Stat(filepath.Join(folder, "data")); !os.IsNotExist(err) {
		t.Errorf("a server that does not start has made its data folder (%v)", err)
	}
}
