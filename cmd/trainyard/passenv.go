package main

import "trainyard/internal/agent/runtime"

// passEnvSetting adds to the variables of the machine that programs get.
var passEnvSetting = setting{
	"pass-env",
	"",
	"further environment variables of the agent that jobs get, separated by commas; MYLIB_* stands for all that begin " +
		"so. Jobs always get settings of CUDA, NCCL, UCX, MPI and modules, library paths, certificates, proxies and the " +
		"locale, never the agent's own variables",
	func(c *config, v string) error {
		if err := list(func(c *config) *[]string { return &c.passEnv })(c, v); err != nil {
			return err
		}

		return runtime.CheckPassEnv(c.passEnv)
	},
}
