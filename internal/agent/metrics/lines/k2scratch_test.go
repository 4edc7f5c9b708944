package lines

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

func TestK2Scratch(t *testing.T) {
	text, err := os.ReadFile("/tmp/k2/l/cases.txt")
	if err != nil { t.Skip(err) }
	for _, c := range strings.Split(string(text), "=====\n") {
		c = strings.ReplaceAll(strings.ReplaceAll(c, `\r`, "\r"), `\e`, "\x1b")
		name, body, _ := strings.Cut(c, "\n")
		fmt.Println("###", name)
		for _, l := range strings.Split(body, "\n") { if l != "" { fmt.Println("   <", l) } }
		for _, s := range hear(t, nil, body) { fmt.Println("      >", s) }
	}
}
