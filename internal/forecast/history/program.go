package history

import (
	"path"
	"slices"
	"strings"
	"unicode"
)

// PlainName is a job's name without its number: the seventh run of a kind is called as the sixth is.
func PlainName(name string) string {
	return strings.TrimRight(strings.ToLower(strings.TrimSpace(name)), "0123456789-_. ")
}

// Program is what a command runs.
type Program struct {
	Name  string // of the script, the module or the executable: "train.py"; "" if there is none
	Words string // what runs of the same program with other data, numbers or seeds have in common
}

// ProgramOf returns what a command runs. Two commands that differ only in arguments that are paths or numbers run
// the same program: they are other seeds, other data, other output directories.
func ProgramOf(command string) Program {
	if len(command) > maxName {
		command = command[:maxName]
	}

	var p Program

	var kept []string

	separates := func(r rune) bool { return strings.ContainsRune("\n;&|", r) }
	for _, line := range strings.FieldsFunc(command, separates) {
		fields := strings.Fields(line)
		for i := 0; i < len(fields); i++ {
			word := strings.Trim(fields[i], `"'`)
			name := path.Base(word)

			switch {
			case i == 0 && slices.Contains(preparations, name): // it is not what the job is about
				i = len(fields)
			case p.Name == "" && strings.Contains(word, "="): // a variable, or an option of a launcher
			case p.Name == "" && slices.Contains(launchers, name) || word == "-m":
			case p.Name == "" && (strings.HasPrefix(word, "-") || !named(name)):
			case p.Name == "":
				p.Name = name
				kept = append(kept, name)
			default:
				kept = append(kept, argument(word)...)
			}
		}
	}

	words := NameWords(strings.Join(kept, " "))
	p.Words = strings.Join(words, " ")

	return p
}

// launchers start what a command is about.
var launchers = []string{
	"python", "python3", "bash", "sh", "env", "exec", "time", "nice", "torchrun", "accelerate", "launch", "deepspeed",
	"mpirun", "srun", "uv", "run", "poetry", "conda", "horovodrun", "ray",
}

// preparations come before it, on lines of their own.
var preparations = []string{
	"cd", "export", "source", ".", "set", "mkdir", "rm", "cp", "mv", "ln", "tar", "unzip", "pip", "pip3", "apt-get", "git",
	"module", "ulimit", "trap",
}

// named reports whether a word can be the name of a program.
func named(word string) bool { return strings.IndexFunc(word, unicode.IsLetter) >= 0 }

// argument returns what of an argument tells programs apart: names of options, and values that are words.
func argument(word string) []string {
	option, value, assigned := strings.Cut(word, "=")
	if assigned {
		return append(argument(option), argument(value)...)
	}

	if strings.ContainsAny(word, "/\\$") || strings.HasPrefix(word, "~") || numeric(word) {
		return nil
	}

	return []string{word}
}

// numeric reports whether a word is a number, a date or a range, or a numbered thing: 1e-4, 2026-11-15, seed7, run_12.
// The name of a model, such as resnet50, is not.
func numeric(word string) bool {
	word = strings.ToLower(strings.TrimLeft(word, "-+."))
	if word != "" && word[0] >= '0' && word[0] <= '9' {
		return true
	}

	stem := strings.TrimRight(word, "0123456789-_.")

	return stem != word && slices.Contains(numbered, stem)
}

// numbered are things that are told apart by a number alone.
var numbered = []string{"seed", "run", "exp", "experiment", "trial", "try", "fold", "split", "part", "job", "rank", "v"}
