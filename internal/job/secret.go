package job

import "strings"

// SecretName returns the name of the stored secret that an entry of secrets in a job file asks for, and whether the
// program gets it as a file. KEY is an environment variable; KEY:file is a file whose path is in that variable.
func SecretName(entry string) (name string, file bool) { return strings.CutSuffix(entry, ":file") }

// SecretNames returns the names of all stored secrets that a job needs: those of its program in the order of the job
// file, and then that with the credentials for its registry, if there is one.
func (s *Spec) SecretNames() []string {
	if len(s.Secrets) == 0 && s.RegistryAuth == "" {
		return nil // most jobs need none, and the queue asks often
	}

	names := make([]string, 0, len(s.Secrets)+1)
	for _, entry := range s.Secrets {
		name, _ := SecretName(entry)
		names = append(names, name)
	}

	if s.RegistryAuth != "" {
		names = append(names, s.RegistryAuth)
	}

	return names
}
