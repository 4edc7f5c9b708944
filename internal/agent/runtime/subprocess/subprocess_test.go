package subprocess

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// What the helper imports is initialised several times for every run.
func TestTheHelperImportsLittle(t *testing.T) {
	t.Parallel()

	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatalf("list what the helper imports: %v", err)
	}

	large := []string{"net", "net/http", "crypto/tls", "compress/gzip", "html/template"}

	for pkg := range strings.FieldsSeq(string(out)) {
		module, _, _ := strings.Cut(pkg, "/")
		own := strings.HasPrefix(pkg, "trainyard/") || strings.HasPrefix(pkg, "vendor/")
		small := strings.HasPrefix(pkg, "golang.org/x/sys/")

		if strings.Contains(module, ".") && !own && !small || slices.Contains(large, pkg) {
			t.Errorf("the helper imports %s, which every run would initialise", pkg)
		}
	}
}
