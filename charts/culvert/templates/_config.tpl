{{/*
The configuration file: kube-proxy's own format, so that it can be compared with kube-proxy's.
What is not set is left out, and the agent's default counts.
*/}}
{{- define "culvert.config" -}}
{{- $values := .Values }}
{{- /* Nobody reads it while nodes are cleaned but an agent that is started again before it is replaced. */}}
{{- $mode := ternary "auto" $values.mode (eq $values.mode "cleanup") }}
{{- $config := dict "apiVersion" "kubeproxy.config.k8s.io/v1alpha1" "kind" "KubeProxyConfiguration" "mode" $mode }}
{{- range $field := list "clusterCIDR" "detectLocalMode" "nodePortAddresses" "healthzBindAddress" "metricsBindAddress" }}
{{- with get $values $field }}{{ $_ := set $config $field . }}{{ end }}
{{- end }}
{{- $detect := dict }}
{{- range $field := list "bridgeInterface" "interfaceNamePrefix" }}
{{- with get $values.detectLocal $field }}{{ $_ := set $detect $field . }}{{ end }}
{{- end }}
{{- with $detect }}{{ $_ := set $config "detectLocal" . }}{{ end }}
{{- /* Which section is read is up to the mode, as for kube-proxy. */}}
{{- $section := dict }}
{{- with $values.syncPeriod }}{{ $_ := set $section "syncPeriod" . }}{{ end }}
{{- if $values.masqueradeAll }}{{ $_ := set $section "masqueradeAll" true }}{{ end }}
{{- with $section }}
{{- $_ := set $config (ternary "nftables" "iptables" (eq $values.mode "nftables")) . }}
{{- end }}
{{- with $values.mapSizes }}
{{- $sizes := dict }}
{{- /* Helm reads large numbers as fractions. */}}
{{- range $name, $entries := . }}{{ $_ := set $sizes $name (int64 $entries) }}{{ end }}
{{- $_ := set $config "culvert" (dict "mapSizes" $sizes) }}
{{- end }}
{{- /* What kubelet gives containers of this class already. To ask for less, which is the agent's
default, takes a right that it does not have. */}}
{{- if eq $values.priorityClassName "system-node-critical" }}
{{- $_ := set $config "oomScoreAdj" -997 }}
{{- end }}
{{- toYaml (mergeOverwrite $config (deepCopy ($values.config | default dict))) }}
{{- end }}

{{/* The agent's command line, after `run`. */}}
{{- define "culvert.args" -}}
- run
- --config=/etc/culvert/config.conf
- --hostname-override=$(NODE_NAME)
{{- with .Values.apiServers }}
- {{ printf "--master=%s" (join "," .) | quote }}
{{- end }}
{{- include "culvert.pinArgs" . }}
{{- include "culvert.adminArgs" . }}
{{- if .Values.takeOver }}
- --take-over
{{- end }}
{{- /* A file cannot turn a port off. */}}
{{- if not .Values.healthzBindAddress }}
- --healthz-bind-address=
{{- end }}
{{- if not .Values.metricsBindAddress }}
- --metrics-bind-address=
{{- end }}
- {{ printf "--log-format=%s" .Values.log.format | quote }}
- {{ printf "--log-level=%s" .Values.log.level | quote }}
{{- range .Values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{/*
The default AppArmor profiles of containerd and Docker deny writes, and so pins, below /sys/fs/bpf,
but not elsewhere. So the host's BPF file system is mounted at another place. It is the same one: the
host's tools find the pins at /sys/fs/bpf/culvert.
*/}}
{{- define "culvert.pinArgs" }}
- --pin-dir=/host/bpf/culvert
{{- end }}

{{/* Named as for the pin directory of the host, which `state` and `explain` look for by themselves,
in the container and on the host. */}}
{{- define "culvert.adminArgs" }}
- --admin-socket=/run/culvert/sys-fs-bpf-culvert.sock
{{- end }}
