package main

import (
	"errors"
	"reflect"

	"github.com/siderolabs/talos/pkg/machinery/config"
	"github.com/siderolabs/talos/pkg/machinery/config/configdiff"
	"github.com/siderolabs/talos/pkg/machinery/config/configloader"
	"github.com/siderolabs/talos/pkg/machinery/config/container"
	"github.com/siderolabs/talos/pkg/machinery/config/types/v1alpha1"
)

// Change is what lies between two configs. Both texts may hold secrets.
type Change struct {
	Live bool   `json:"live"`
	Why  string `json:"why"`
	Diff string `json:"diff"`
}

// compare says how the second config differs from the first, and whether a running machine takes it without a reboot.
// A machine without a config of its own (an empty file) takes anything.
func compare(files []string) (Change, error) {
	if len(files) != 2 {
		return Change{}, errors.New("name two files: the config in effect, and the new one")
	}

	loaded := make([]config.Provider, 2)

	for position, file := range files {
		text, err := read(file)
		if err != nil {
			return Change{}, err
		}

		if len(text) == 0 && position == 0 {
			continue
		}

		if loaded[position], err = configloader.NewFromBytes(text); err != nil {
			return Change{}, err
		}
	}

	if loaded[0] == nil {
		diff, err := configdiff.DiffConfigs(nil, loaded[1])

		return Change{Live: true, Diff: diff}, err
	}

	diff, err := configdiff.DiffConfigs(loaded[0], loaded[1])
	if err != nil {
		return Change{}, err
	}

	why, err := rebootReason(loaded[0].RawV1Alpha1(), loaded[1].RawV1Alpha1())

	return Change{Live: why == "", Why: why, Diff: diff}, err
}

// rebootReason is empty when all that differs is what a running Talos v1.13 takes up. Documents beside v1alpha1 always
// are.
func rebootReason(old, replacement *v1alpha1.Config) (string, error) {
	if old == nil || replacement == nil {
		return "", nil
	}

	kept := replacement.DeepCopy()
	kept.ConfigDebug = old.ConfigDebug
	kept.ClusterConfig = old.ClusterConfig

	if kept.MachineConfig != nil && old.MachineConfig != nil {
		takeLive(reflect.ValueOf(kept.MachineConfig).Elem(), reflect.ValueOf(old.MachineConfig).Elem(), liveOfMachine)

		if kept.MachineConfig.MachineFeatures != nil && old.MachineConfig.MachineFeatures != nil {
			takeLive(
				reflect.ValueOf(kept.MachineConfig.MachineFeatures).Elem(),
				reflect.ValueOf(old.MachineConfig.MachineFeatures).Elem(), liveOfFeatures,
			)
		}
	}

	if reflect.DeepEqual(old, kept) {
		return "", nil
	}

	diff, err := configdiff.DiffConfigs(container.NewV1Alpha1(old), container.NewV1Alpha1(kept))

	return "this config change can't be applied in immediate mode\ndiff:\n" + diff, err
}

func takeLive(target, source reflect.Value, fields []string) {
	for _, field := range fields {
		target.FieldByName(field).Set(source.FieldByName(field))
	}
}

var (
	liveOfMachine = []string{
		"MachineCA", "MachineAcceptedCAs", "MachineTime", "MachineCertSANs", "MachineInstall", "MachineNetwork",
		"MachineSysfs", "MachineSysctls", "MachineLogging", "MachineControlPlane", "MachineKubelet", "MachineKernel",
		"MachineRegistries", "MachinePods", "MachineSeccompProfiles", "MachineNodeAnnotations", "MachineNodeLabels",
		"MachineNodeTaints",
	}
	liveOfFeatures = []string{
		"KubernetesTalosAPIAccessConfig", "KubePrismSupport", "HostDNSSupport", "ImageCacheSupport",
		"FeatureNodeAddressSortAlgorithm",
	}
)
