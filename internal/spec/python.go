package spec

import (
	"path"
	"strings"

	"go.yaml.in/yaml/v3"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// python returns the environment of a spec, made if there is none.
func python(s *job.Spec) *job.Python {
	if s.Python == nil {
		s.Python = &job.Python{}
	}

	return s.Python
}

// pythonField is about the environment that set-up and program run in.
func pythonField() field {
	return field{
		name:    "python",
		example: "{version: 3.11, requirements: requirements.txt}",
		also:    []string{"conda", "venv", "virtualenv", "requirements", "pip"},
		doc: "A Python environment for setup and run, made on the node once for the same content and then shared, " +
			"read-only, by all your jobs. With version alone it has no packages. Not with image.",
		fields: []field{
			{
				name:    "version",
				kind:    versionKind(),
				example: "3.11",
				also:    []string{"python_version"},
				doc: "The version of Python, such as 3.11 or 3.11.7; without it that of the node, or what the lock file asks " +
					"for. Nodes with uv fetch a version that they do not have.",
			},
			{
				name:    "requirements",
				kind:    requirementsKind(),
				example: "requirements.txt",
				also:    []string{"packages", "pip", "dependencies"},
				doc: "A requirements file in the working directory, or a list of packages as such a file has them. They are " +
					"installed by uv, or by pip on nodes without it.",
			},
			{
				name: "uv",
				kind: fileKind(func(s *job.Spec) *string { return &python(s).UV }, "uv.lock or pyproject.toml",
					func(name string) bool { return name == job.LockFile || name == "pyproject.toml" }),
				example: "uv.lock",
				also:    []string{"lock", "lockfile", "pyproject"},
				doc: "A uv.lock in the working directory, with its pyproject.toml beside it: exactly its packages are installed. " +
					"Or a pyproject.toml, whose dependencies are. The project itself is not installed. It runs on nodes with uv.",
			},
			{
				name: "conda",
				kind: fileKind(func(s *job.Spec) *string { return &python(s).Conda }, "environment.yml",
					func(name string) bool { return strings.HasSuffix(name, ".yml") || strings.HasSuffix(name, ".yaml") }),
				example: "environment.yml",
				also:    []string{"environment", "mamba"},
				doc: "An environment file of conda in the working directory. It runs on nodes with micromamba, mamba or conda. " +
					"Its packages' activation scripts are not run.",
			},
		},
	}
}

// versionKind reads a version of Python. What looks like a number is taken as it stands: 3.10 is not 3.1.
func versionKind() kind {
	k := stringKind("a version of Python", func(s *job.Spec) *string { return &python(s).Version },
		func(s string) (string, string) {
			if job.PythonVersion(s) {
				return "", ""
			}

			return "must be a version of Python 3 such as 3.11 or 3.11.7", "write it as in version: 3.11"
		})
	k.schema = func() schema {
		return schema{"type": []string{"string", "number"}, "pattern": `^3\.[0-9]+(\.[0-9]+)?$`}
	}

	return k
}

// fileKind reads the path of a file in the working directory, of certain names.
func fileKind(at func(*job.Spec) *string, names string, named func(name string) bool) kind {
	k := stringKind("a path", at, func(s string) (string, string) {
		if constraint, remedy := badInside(s, names); constraint != "" {
			return constraint, remedy
		}

		if !named(path.Base(s)) {
			return "must be the path of a file called " + names, "write it as in " + strings.Fields(names)[0]
		}

		return "", ""
	})
	k.schema = func() schema { return schema{"type": "string"} }

	return k
}

// badInside says what the path of a file in the working directory must be, if this one is not.
func badInside(s, example string) (string, string) {
	clean := path.Clean(s)
	if path.IsAbs(s) || strings.HasPrefix(s, "~") || clean == "." || clean == ".." || strings.HasPrefix(clean, "../") ||
		strings.Contains(s, "://") {
		return "must be the path of a file inside the working directory", "write it as in " + strings.Fields(example)[0]
	}

	return "", ""
}

// requirementsKind reads the path of a requirements file, or the lines of one.
func requirementsKind() kind {
	return kind{
		words:  "a path or a list of packages",
		schema: func() schema { return oneOrMany(schema{"type": "string"}) },
		read: func(v value) {
			if v.n.Kind == yaml.ScalarNode {
				readRequirementsFile(v)
				return
			}

			for _, i := range v.items() {
				s, ok := i.line()
				if !ok {
					continue
				}

				if strings.TrimSpace(s) == "" || strings.HasPrefix(s, "#") {
					i.bad("must be a package such as numpy or torch==2.6.0"+got(s), i.example())
					continue
				}

				p := python(&v.d.entry.Spec)
				p.Packages = append(p.Packages, s)
			}
		},
		write: func(s *job.Spec) (*yaml.Node, error) {
			switch {
			case s.Python == nil:
				return nil, nil
			case len(s.Python.Packages) == 0:
				return textNode(s.Python.Requirements)
			}

			n := &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Style: yaml.FlowStyle}
			for _, line := range s.Python.Packages {
				item, err := textNode(line)
				if err != nil {
					return nil, err
				}

				n.Content = append(n.Content, item)
			}

			return n, nil
		},
	}
}

// readRequirementsFile reads the path of a requirements file. A package is often written there by mistake.
func readRequirementsFile(v value) {
	s, ok := v.line()
	if !ok {
		return
	}

	constraint, remedy := badInside(s, "requirements.txt")
	if ext := path.Ext(s); constraint == "" && ext != ".txt" && ext != ".in" && ext != ".pip" {
		constraint, remedy = "must be the path of a .txt, .in or .pip file, or a list of packages",
			"write it as in requirements: ["+s+"]"
	}

	if constraint != "" {
		v.bad(constraint+got(s), remedy)
		return
	}

	python(&v.d.entry.Spec).Requirements = s
}

// python checks that an environment says one thing, and that the node will have what it refers to.
func (r *reader) python(d *draft) {
	n, given := d.at["python"]
	if !given || n.Kind != yaml.MappingNode {
		return
	}

	p := d.entry.Spec.Python
	if len(n.Content) == 0 {
		r.Fail(n, "missing_value", "python", "must have a version or packages, got nothing",
			"write it as in python: {requirements: requirements.txt}")
		return
	}

	var sources []string
	for _, name := range []string{"requirements", "uv", "conda"} {
		if d.at["python."+name] != nil {
			sources = append(sources, name)
		}
	}

	if len(sources) > 1 {
		r.Fail(n, "conflict", "python", "must have at most one of requirements, uv and conda, got "+
			strings.Join(sources, " and "), "remove all but one of them")
	}

	if at := d.at["python.version"]; at != nil && d.at["python.conda"] != nil {
		r.Fail(at, "conflict", "python.version", "must not be given with conda",
			"write the version of Python into the environment file, as in python=3.11")
	}

	if at := d.at["image"]; at != nil {
		r.Fail(n, "conflict", "python", "must not be given with image: the image has its own Python",
			"install the packages in the image, or in setup, or remove image")
	}

	if p != nil && p.File() != "" && d.at["workdir"] == nil {
		r.Fail(d.at["python."+sources[0]], "missing_value", "workdir", "is required for "+yamlfile.Quote(p.File())+
			", which is uploaded with it", "add a line such as workdir: .")
	}
}
