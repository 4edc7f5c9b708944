package spec

import (
	"fmt"
	"slices"
	"strings"

	"trainyard/internal/job"
	"trainyard/internal/yamlfile"
)

// references checks that what run and env refer to is there and can be put in.
func (r *reader) references(d *draft) {
	s := &d.entry.Spec

	r.checkReferences(d, "run", s.Run)

	names := make([]string, 0, len(s.Env))
	for name := range s.Env {
		names = append(names, name)
	}

	slices.Sort(names)

	for _, name := range names {
		if !slices.Contains(d.entry.Required, name) { // what the submitter's environment has is nobody's template
			r.checkReferences(d, yamlfile.Join("env", name), s.Env[name])
		}
	}

	for _, ref := range job.Placeholders(s.Setup) {
		if _, isParam := s.Params[ref.Name]; isParam || strings.HasPrefix(ref.Name, "array.") && s.Array != nil {
			r.Fail(d.at["setup"], "bad_value", "setup", "must not use {{"+ref.Name+
				"}}, because it runs once for all jobs with the same commands", "use it in run")
			return
		}
	}

	r.expansions(d)
}

// checkReferences checks the references of one text.
func (r *reader) checkReferences(d *draft, path, text string) {
	s := &d.entry.Spec
	at := d.at[path]
	if at == nil {
		at = d.at["env"]
	}

	for _, ref := range job.Placeholders(text) {
		if r.Full() {
			r.Skip()
			return
		}
		if ref.Escaped {
			continue
		}

		fail := func(code, message, remedy string) { r.Fail(at, code, path, message, remedy) }
		braces := "{{" + ref.Name + "}}"

		if strings.HasPrefix(ref.Name, "array.") {
			_, known := job.Variable(ref.Name)

			switch {
			case !known:
				fail("unknown_param", "unknown value "+braces,
					"the values of an array are array.id, array.index, array.size and array.value")
			case s.Array == nil:
				fail("unknown_param", "must not use "+braces+" without array", "add a line such as array: 0..9, or write \\"+braces+
					" for the braces themselves")
			}

			continue
		}

		x, known := s.Params[ref.Name]
		_, passed := job.ParamText(x)

		switch {
		case !known:
			remedy := "add it to params, as in params: {" + ref.Name + ": 0.1}, or write \\" + braces +
				" for the braces themselves"
			if closest := r.Finder.Closest(ref.Name, paramNames(s)); closest != "" {
				remedy = "did you mean {{" + closest + "}}?"
			}

			fail("unknown_param", "must use parameters of params, got "+braces, remedy)
		case x == nil && (r.opts.AnyParams || d.missing[ref.Name]):
		case x == nil:
			fail("missing_param", "needs a value for "+braces,
				"submit with --set "+ref.Name+"=VALUE, or give it a value in params")
		case !passed:
			fail("bad_value", fmt.Sprintf("must use numbers, booleans and texts of at most %d bytes, and %s is something else",
				job.MaxParam, braces), "write what the program needs into a file of the working directory")
		}
	}
}

func paramNames(s *job.Spec) []string {
	names := make([]string, 0, len(s.Params))
	for name := range s.Params {
		names = append(names, name)
	}

	slices.Sort(names)

	return names
}

// expansions refuses references in run where a shell would not put the value in, or would compute with it.
func (r *reader) expansions(d *draft) {
	s := &d.entry.Spec
	verbatim, computed := s.Unexpanded()

	for _, ref := range verbatim {
		variable, known := job.Variable(ref.Name)
		if _, isParam := s.Params[ref.Name]; !known || !isParam && s.Array == nil {
			continue // reported already
		}

		r.Fail(d.at["run"], "bad_value", "run", "must not use {{"+ref.Name+
			"}} in a here-document whose word is quoted, because the shell puts nothing in there",
			"take the quotes off the word, or let the program read "+variable+" from its environment")
	}

	for _, ref := range computed {
		if !r.computable(s, ref.Name) {
			r.Fail(d.at["run"], "bad_value", "run", "must not use {{"+ref.Name+
				"}} in arithmetic, because its value is not a number", "put it into a variable and check that first")
		}
	}
}

// computable reports whether all values of a reference are numbers. A shell would execute some texts.
func (r *reader) computable(s *job.Spec, name string) bool {
	x, isParam := s.Params[name]

	switch {
	case isParam && x == nil:
		return true // it is missing, which is reported
	case isParam:
		_, isNumber := x.(float64)
		return isNumber
	case name == "array.value" && s.Array != nil:
		return !slices.ContainsFunc(s.Array.Values, func(text string) bool {
			_, isNumber := parseNumber(text)
			return !isNumber
		})
	}

	return name != "array.id"
}
