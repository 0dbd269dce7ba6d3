{{/* What the agent is started with besides its file: what it would refuse, or take for another order. */}}
{{- define "culvert.refuseArguments" -}}
{{- $v := .Values }}
{{- $flags := dict "config" "config" "node-name" "(the node's own)" "hostname-override" "(the node's own)" "master" "apiServers" "pin-dir" "(fixed: see templates/_config.tpl)" "admin-socket" "(fixed: see templates/_config.tpl)" "proxy-mode" "mode" "take-over" "takeOver" "healthz-bind-address" "healthzBindAddress" "metrics-bind-address" "metricsBindAddress" "cluster-cidr" "clusterCIDR" "detect-local-mode" "detectLocalMode" "pod-bridge-interface" "detectLocal.bridgeInterface" "pod-interface-name-prefix" "detectLocal.interfaceNamePrefix" "nodeport-addresses" "nodePortAddresses" "masquerade-all" "masqueradeAll" "sync-period" "syncPeriod" "iptables-sync-period" "syncPeriod" "log-format" "log.format" "log-level" "log.level" "map-size" "mapSizes" }}
{{- /* Each makes the agent do one thing and end, which a DaemonSet starts again for ever. */}}
{{- $instead := dict "cleanup" "mode: cleanup cleans nodes" "init-only" "it prepares the host, and serves nothing" "version" "proxy-agent version, executed in a pod, tells it" "help" "docs/reference/cli.md has all flags" "write-config-to" "proxy-agent state, executed in a pod, tells what is in effect; /configz, too" }}
{{- range $v.extraArgs }}
{{- if not (regexMatch "^--[a-z]" .) }}
{{- fail (printf "extraArgs: %q is no flag of `run`: each entry is --flag or --flag=value, and the command is the chart's: mode: cleanup cleans nodes" .) }}
{{- end }}
{{- $flag := . | trimPrefix "--" | splitList "=" | first | replace "_" "-" }}
{{- with get $flags $flag }}
{{- fail (printf "extraArgs: --%s is given by the chart: %s" $flag .) }}
{{- end }}
{{- with get $instead $flag }}
{{- fail (printf "extraArgs: --%s makes the agent do something other than serve, on every node: %s" $flag .) }}
{{- end }}
{{- if hasPrefix "cleanup-" $flag }}
{{- fail (printf "extraArgs: --%s is of no use to an agent that serves: mode: cleanup cleans nodes" $flag) }}
{{- end }}
{{- end }}

{{- range $v.env }}
{{- if has .name (list "NODE_NAME" "CULVERT_PIN_DIR") }}
{{- fail (printf "env: %s is set by the chart: of two entries the last would count, and the agent would serve under another name or by other pins than its pod" .name) }}
{{- end }}
{{- end }}

{{- $levels := "(off|error|warn|info|debug|trace|[0-5])" }}
{{- $known := printf "^([0-9]+|%s|aya|h2|hyper|kube|mio|notify|rustls|tonic|tower|[^= ]*[:_][^= ]*|[^= ]+=%s)?$" $levels $levels }}
{{- $level := $v.log.level }}
{{- /* Fields of spans may hold anything. */}}
{{- if not (contains "[" $level) }}
{{- range splitList "," $level }}
{{- if or (not (regexMatch $known (trim . | lower))) (not (trimAll ", " $level)) }}
{{- fail (printf "log.level: %q: %q is no level: use error, warn, info, debug or trace, or directives such as info,proxy_agent=debug" $level .) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
