package job

import "strings"

// SecretName returns the name of the stored secret that an entry of secrets in a job file asks for, and whether the
// program gets it as a file. KEY is an environment variable; KEY:file is a file whose path is in that variable.
func SecretName(entry string) (name string, file bool) { return strings.CutSuffix(entry, ":file") }
