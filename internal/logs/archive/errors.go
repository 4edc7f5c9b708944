package archive

import (
	"bytes"
	"regexp"
)

// errorHints are parts of every line that errorLine matches: most lines have none, and to find that out is cheap.
var errorHints = [][]byte{
	[]byte("rror"), []byte("RROR"), []byte("xception"), []byte("raceback"), []byte("atal"), []byte("FATAL"),
	[]byte("CRITICAL"), []byte("anic"), []byte("fault"), []byte("illed"), []byte("emory"), []byte("dumped"),
	[]byte("denied"), []byte("No such"), []byte("not found"), []byte("No space"), []byte("Aborted"),
	[]byte("xited with"), []byte("xit code"), []byte("XID"), []byte("nterrupt"),
}

// errorLine matches lines that say what went wrong. Training loops print errors that are figures ("error: 0.12"), which
// it passes over.
var errorLine = regexp.MustCompile(
	`Traceback \(most recent call last\)` +
		`|^\s*(\[rank\d+\]:\s*)?[\w.]*\w(Error|Exception|Interrupt)(:|\s*$)` + // the last line of a traceback
		`|\b(ERROR|FATAL|CRITICAL)\b` +
		`|\b[Ee]rror:\s*[^\s\d.+-]` +
		`|\b(fatal|panic|Fatal|Panic)(:| error)` +
		`|(CUDA|NCCL|cuDNN|MPI|Bus|Fatal Python) error` +
		`|[Ss]egmentation fault|core dumped|\b[Oo]ut of memory|OutOfMemory|OOM[- ][Kk]illed|\bKilled\s*$|\bAborted\b` +
		`|No such file or directory|command not found|No space left on device|[Pp]ermission denied` +
		`|[Ee]xited with (exit )?(code|status) -?[1-9]|[Ee]xit code -?[1-9]|\bXID \d+`)

// LooksLikeError reports whether a line probably says what went wrong.
func LooksLikeError(text []byte) bool {
	for _, hint := range errorHints {
		if bytes.Contains(text, hint) {
			return errorLine.Match(text)
		}
	}

	return false
}
