package place

import (
	"fmt"
	"strings"

	"trainyard/internal/fleet"
)

// needWords says what one node must have.
func needWords(n fleet.Need) string {
	var parts []string
	if n.GPUs > 0 {
		what := plural(n.GPUs, "GPU")
		if n.Kinds != "" {
			what = fmt.Sprintf("%dx %s", n.GPUs, strings.ReplaceAll(n.Kinds, "|", " or "))
		}
		switch {
		case n.GPUMin > 0 && n.GPUMax > 0:
			what += fmt.Sprintf(" of %s to %s", n.GPUMin, n.GPUMax)
		case n.GPUMin > 0:
			what += " of at least " + n.GPUMin.String()
		case n.GPUMax > 0:
			what += " of at most " + n.GPUMax.String()
		}
		if n.GPUOver > 0 {
			what += " with more than " + n.GPUOver.Short() + " of memory"
		}
		parts = append(parts, what)
	}
	if n.CPUs == 1000 {
		parts = append(parts, "1 CPU")
	} else if n.CPUs > 0 || n.GPUs == 0 && n.Memory == 0 {
		parts = append(parts, n.CPUs.String()+" CPUs")
	}
	if n.Memory > 0 {
		parts = append(parts, n.Memory.Short()+" of memory")
	}
	return list(parts)
}

// list joins parts as in a sentence.
func list(parts []string) string {
	if len(parts) == 1 {
		return parts[0]
	}
	return strings.Join(parts[:len(parts)-1], ", ") + " and " + parts[len(parts)-1]
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
