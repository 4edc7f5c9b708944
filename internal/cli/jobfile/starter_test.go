package jobfile_test

import (
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"trainyard/internal/cli/jobfile"
)

func folder(files map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range files {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}

	return all
}

func TestAStarterFitsTheFolder(t *testing.T) {
	t.Parallel()

	for name, tt := range map[string]struct {
		files map[string]string
		lines []string // that the file has
		says  string
	}{
		"a script with packages": {
			map[string]string{"train.py": "import torch\nx = x.cuda()\ntorch.save(m, 'ckpt/m.pt')\n", "requirements.txt": "torch\n"},
			[]string{"run: python3 train.py", "setup: pip install -r requirements.txt", "  gpus: 1 ", "framework: pytorch",
				"checkpoint: {dir: ckpt}"},
			"runs python3 train.py with 1 GPU, after pip install -r requirements.txt",
		},
		"a distributed script": {
			map[string]string{"main.py": "import torch.distributed as dist\nfrom torch import nn\ntorch.device('cuda')\nimport torch\n"},
			[]string{"run: torchrun --standalone --nproc-per-node=gpu main.py", "  gpus: 1 "},
			"runs torchrun",
		},
		"lightning with four devices": {
			map[string]string{"fit.py": "import lightning as L\nL.Trainer(devices=4)\n", "pyproject.toml": ""},
			[]string{"run: python3 fit.py", "  gpus: 4 ", "framework: lightning", "setup: pip install ."},
			"with 4 GPUs",
		},
		"a program without a GPU": {
			map[string]string{"main.go": "package main\n"},
			[]string{"run: go run main.go", "  # gpus: 1 ", "# checkpoint: {dir: ckpt}", "# framework: pytorch"},
			"runs go run main.go without a GPU",
		},
		"a script of another name": {
			map[string]string{"my_training.py": "", "util.py": "", "test_it.py": ""},
			[]string{"run: python3 my_training.py"},
			"runs python3 my_training.py",
		},
		"nothing":            {map[string]string{"README.md": ""}, []string{"run: echo 'write the command of your job here'"}, "no program was found"},
		"several candidates": {map[string]string{"a.py": "", "b.py": ""}, nil, "no program was found"},
	} {
		s, err := jobfile.NewStarter(folder(tt.files), "My Model (v2)")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		for _, want := range append(tt.lines, "name: my-model--v2") {
			if !strings.Contains("\n"+s.Text, "\n"+want) {
				t.Errorf("%s: the file lacks %q:\n%s", name, want, s.Text)
			}
		}

		if !strings.Contains(s.Summary, tt.says) {
			t.Errorf("%s: it says %q", name, s.Summary)
		}

		if _, err := jobfile.Check([]byte(s.Text), time.Time{}); err != nil {
			t.Errorf("%s: the file is not valid: %v\n%s", name, err, s.Text)
		}

		// What is a comment is valid too.
		open := strings.NewReplacer("\n# setup:", "\nsetup:", "\n  # ", "\n  ", "\n# expect", "\nexpect", "\n# max_", "\nmax_",
			"\n# objective", "\nobjective", "\n# checkpoint", "\ncheckpoint", "\n# retry", "\nretry", "\n# framework", "\nframework",
			"\n# params", "\nparams", "\n# env", "\nenv").Replace(s.Text)
		if _, err := jobfile.Check([]byte(open), time.Time{}); err != nil {
			t.Errorf("%s: with all lines the file is not valid: %v\n%s", name, err, open)
		}
	}
}

func TestAFolderWithoutANameStillHasAJob(t *testing.T) {
	t.Parallel()

	for name, want := range map[string]string{"": "train", "///": "train", "日本": "train", strings.Repeat("a", 200): ""} {
		s, err := jobfile.NewStarter(folder(nil), name)
		if err != nil || !strings.Contains(s.Text, "\nname: "+want) {
			t.Errorf("%q: %v\n%s", name, err, s.Text)
		}

		if _, err := jobfile.Check([]byte(s.Text), time.Time{}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
