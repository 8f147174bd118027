/** Opens the dashboard signed in: what stands behind # is not sent to any server. */
export const linkTo = (url: string, apiKey: string): string => `${url}/#key=${encodeURIComponent(apiKey)}`;
