package contexts

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"trainyard/internal/fault"
)

// FromStdin in place of a token says that it is read from standard input.
const FromStdin = "-"

// ReadToken returns the token that a command was given: itself, in a file, or on the first line of standard input. A
// token on a command line can be seen by other users of the machine, so there is a way around it wherever one is
// asked for.
func ReadToken(token, file string, stdin io.Reader) (string, error) {
	switch {
	case token != "" && file != "":
		return "", fault.New(fault.Invalid, "two_tokens", "a token and a file with a token were given").
			WithRemedy("give one of the two")
	case file != "":
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("read the token: %w", err)
		}

		return strings.TrimSpace(string(text)), nil
	case token == FromStdin:
		text, err := bufio.NewReader(stdin).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fmt.Errorf("read the token from standard input: %w", err)
		}

		return strings.TrimSpace(text), nil
	}

	return strings.TrimSpace(token), nil
}
